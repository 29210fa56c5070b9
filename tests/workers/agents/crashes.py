"""An agent that dies after each of its effects once, and another process that resumes from the real journal."""

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any

from gymq.agent import Rollout
from gymq.bus import Bus, BusError
from gymq.execution.journal import Journal
from gymq.failures import RolloutError
from gymq.protocol import subjects
from gymq.protocol.messages import Call, Generate, Message, Seeded, Task
from gymq.resources import Verdict
from gymq.testing.agent_harness import AgentHarness

FOR_EVER = 10**6


class Died(BusError):
    """What an agent meets when its process ends: nothing it does goes anywhere any more."""


@dataclass
class Done:
    """A rollout at its end, and the model calls that were paid for it."""

    verdict: Verdict
    response: dict[str, Any]
    num_model_calls: int


class Mortal:
    """Passes requests on until its time has come; the reply of its last request is lost, or it is not."""

    def __init__(self, harness: AgentHarness, dies_at: int, *, hears_last: bool) -> None:
        self.num_effects = 0
        self.num_model_calls = 0
        self._harness = harness
        self._dies_at = dies_at
        self._hears_last = hears_last

    async def call(self, subject: str, request: Call) -> Message:
        if self.num_effects == self._dies_at:
            raise Died("the process was killed")
        self.num_effects += 1
        self.num_model_calls += isinstance(request, Generate)
        answer = await with_subject_of_session(self._harness, subject, request)
        if self.num_effects == self._dies_at and not self._hears_last:
            raise Died("the process was killed")
        return answer

    async def send(self, subject: str, request: Call) -> None:
        with contextlib.suppress(RolloutError):  # no caller waits for the answer
            await self._harness.send(_session_id(subject), request)


async def with_subject_of_session(harness: AgentHarness, subject: str, request: Call) -> Message:
    """What a harness answers, with subjects for its sessions as a worker's are."""
    answer = await harness.call(_session_id(subject), request)
    if isinstance(answer, Seeded) and answer.session is not None:
        return Seeded(session=subjects.SESSION.of("worker", answer.session), replayable=answer.replayable)
    return answer


async def uninterrupted(harness: AgentHarness, row: dict[str, Any]) -> tuple[Done, int]:
    """A rollout without a crash, and how many effects it has."""
    caller = Mortal(harness, FOR_EVER, hears_last=True)
    rollout = _rollout(harness, row, caller)
    verdict = await harness.agent.run(rollout)
    return Done(verdict, _plain(rollout.response), caller.num_model_calls), caller.num_effects


def task_of(run: str, row: dict[str, Any]) -> Task:
    return Task(
        run=run,
        task_index=0,
        rollout_index=0,
        num_rollouts=1,
        agent="agent",
        row=json.dumps(row).encode(),
        timeout_s=60.0,
    )


async def with_a_crash(
    bus: Bus, run: str, harness: AgentHarness, row: dict[str, Any], at: int, *, hears_last: bool
) -> Done:
    """A rollout whose first process dies at effect number `at`, with or without its reply.

    The model calls of both processes are counted.
    """
    task = task_of(f"{run}-{at}-{hears_last}", row)
    num_model_calls = 0
    for dies_at in (at, FOR_EVER):
        caller = Mortal(harness, dies_at, hears_last=hears_last)
        rollout = _rollout(harness, row, caller)
        journal = Journal(bus, task, "worker")
        await journal.take_over()
        rollout.recorder = journal
        try:
            verdict = await harness.agent.run(rollout)
        except Died:
            continue
        finally:
            num_model_calls += caller.num_model_calls
        if dies_at == at:
            continue
        await journal.drop()
        return Done(verdict, _plain(rollout.response), num_model_calls)
    raise AssertionError("the second process died too")


def _session_id(subject: str) -> str:
    """What the harness takes as the address of a session."""
    return subject.rpartition(".")[2] if subject.startswith("gym.session.") else subject


def _rollout(harness: AgentHarness, row: dict[str, Any], caller: Mortal) -> Rollout:
    return Rollout(
        caller,
        rollout_id="run/0/0",
        row=json.dumps(row).encode(),
        options=harness.agent.options,
        deadline=asyncio.get_running_loop().time() + 300.0,
    )


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=list))
