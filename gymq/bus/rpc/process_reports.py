"""What each process reports of a run, to those who show it: the reasons for which calls wait, the slowest call, tokens.

Processes answer with it among the statistics of the services protocol (`gymq.bus.discovery`), so one question reaches
all. How long a call may take is not decided here: it carries that as `timeout_s` (`gymq.AgentOptions`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from gymq.protocol.messages import (
    Call,
    Close,
    Generate,
    Generated,
    GenerateNext,
    Message,
    ReadPrompt,
    Seed,
    ToolCall,
    Verify,
)
from gymq.protocol.subjects import MAX_INDEX, RolloutId

MAX_RUNS = 16
"""Runs of which a process reports its calls: those whose open calls are the oldest."""

_KINDS: dict[type[Call], str] = {
    Generate: "model call",
    GenerateNext: "model call",
    ReadPrompt: "model call",
    ToolCall: "tool call",
    Verify: "verification",
    Seed: "start of a session",
    Close: "end of a session",
}

Reason = Annotated[str, msgspec.Meta(max_length=300)]
Number = Annotated[int, msgspec.Meta(ge=0)]
Waits = dict[Reason, Number]  # how many wait for each reason


class SlowestCall(msgspec.Struct, frozen=True):
    """The call of a run that has been without a reply for longest."""

    kind: Reason  # such as `model call`
    seconds: float


class CallsOfRun(msgspec.Struct, frozen=True):
    """The calls of one run that a process waits for."""

    slowest: SlowestCall
    waits: Waits


def limit_reached(instance: str, limit: int, what: str) -> str:
    """Return the reason for which work waits that an instance could do, if it did more at a time."""
    return f"{instance}: {limit:,} {what} at a time in a process (max_concurrency)"


class ProcessReport(msgspec.Struct, frozen=True):
    """The waits of one process."""

    calls: dict[str, CallsOfRun] = {}  # by run
    storing: Waits = {}  # messages that the server does not take
    limited: Waits = {}  # calls that arrived and wait for others of the process
    queued: Waits = {}  # tasks that wait for a slot; the processes of an agent see the same ones


class TokenCount(msgspec.Struct):
    """Tokens of a model's replies."""

    input: Number = 0
    output: Number = 0

    @property
    def total(self) -> int:
        return self.input + self.output


def tokens_used(response: dict[str, Any]) -> TokenCount:
    """Return the usage that a Responses object states; a value that is not a count is 0."""
    usage = response.get("usage")
    if not isinstance(usage, dict):
        return TokenCount()
    return TokenCount(_count(usage.get("input_tokens")), _count(usage.get("output_tokens")))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and 0 < value < MAX_INDEX else 0


def cost_of(reply: Message) -> float:
    """Return what a call cost that got this reply: one, and the tokens of it."""
    return 1.0 + (tokens_used(reply.response).output if isinstance(reply, Generated) else 0)


class ModelReport(msgspec.Struct, frozen=True):
    """The waits and latencies of a model's calls in one process."""

    waits: Waits = {}
    retries: Number = 0  # requests that were sent again, since the process started
    oddities: Waits = {}  # what was slightly off and was read all the same, by its kind, since then


class OpenCall:
    """A call without a reply yet.

    Attributes:
        waits_for: why no worker processes it; empty: one may.
        unserved_since: when it began to wait for a worker, on the event loop's clock.
    """

    __slots__ = ("kind", "run", "since", "unserved_since", "waits_for")

    def __init__(self, run: str, kind: str) -> None:
        self.run = run
        self.kind = kind
        self.since = time.monotonic()
        self.waits_for = ""
        self.unserved_since: float | None = None


class OpenCalls:
    """The calls of a process that have no reply yet, the oldest first."""

    def __init__(self) -> None:
        self._open: dict[OpenCall, None] = {}

    def add(self, request: Call) -> OpenCall:
        """Count a call until it is removed."""
        call = OpenCall(RolloutId.run_of(request.rollout), _KINDS[type(request)])
        self._open[call] = None
        return call

    def remove(self, call: OpenCall) -> None:
        """Forget a call: it has its reply, or its caller no longer waits for one."""
        del self._open[call]

    def by_run(self) -> dict[str, CallsOfRun]:
        """Return the slowest call and what is waited for, for each of `MAX_RUNS` runs."""
        now = time.monotonic()
        runs: dict[str, CallsOfRun] = {}
        for call in self._open:
            of_run = runs.get(call.run)
            if of_run is None:
                if len(runs) == MAX_RUNS:
                    continue
                of_run = runs[call.run] = CallsOfRun(SlowestCall(call.kind, now - call.since), {})
            if call.waits_for:
                of_run.waits[call.waits_for] = of_run.waits.get(call.waits_for, 0) + 1
        return runs


class _Data(ProcessReport, frozen=True):
    model: ModelReport | None = None


class _Endpoint(msgspec.Struct, frozen=True):
    data: _Data = _Data()


class _Stats(msgspec.Struct, frozen=True):
    name: str
    id: str  # of the process
    metadata: dict[str, str]
    endpoints: list[_Endpoint]


class ClusterReport:
    """The reports of a cluster's workers on one run, all of them together; see `gymq.bus.discovery.find_workers`.

    Attributes:
        agents: names of the agents that answered.
        waits: how many calls, or messages to be stored, wait for each reason.
        slowest: the slowest call of the run; None: it has none.
        retries: requests sent again since each process started, by process and model.
    """

    def __init__(self, run: str, answers: Iterable[dict[str, Any]]) -> None:
        self.agents: set[str] = set()
        self.waits: Counter[str] = Counter()
        self.slowest: SlowestCall | None = None
        self.retries: dict[tuple[str, str], int] = {}
        processes: dict[str, _Data] = {}
        for answer in answers:
            try:
                stats = msgspec.convert(answer, _Stats)
            except msgspec.ValidationError:
                continue  # of another program on the same server
            if stats.metadata.get("kind") == "agents":
                self.agents.add(stats.name)
            if stats.endpoints:
                data = processes[stats.id] = stats.endpoints[0].data  # each instance says the same of its process
                if data.model is not None:
                    self.waits.update(data.model.waits)
                    self.retries[stats.id, stats.name] = data.model.retries
        for data in processes.values():
            self.waits.update(data.storing)
            self.waits.update(data.limited)
            self.waits |= Counter(data.queued)
            if (of_run := data.calls.get(run)) is not None:
                self.waits.update(of_run.waits)
                if self.slowest is None or of_run.slowest.seconds > self.slowest.seconds:
                    self.slowest = of_run.slowest
