"""A rollout knows which policies made it; one that was begun by too old a policy starts over and is never stored."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

import gymq
from gymq.bus import Bus
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.serving import Server
from gymq.bus.weights.staleness import Staleness
from gymq.data.run_files import failure_row, output_row
from gymq.execution.attempts import Attempts
from gymq.execution.model_runner import ModelRunner
from gymq.execution.resources_runner import ResourcesRunner
from gymq.failures import RolloutError
from gymq.model import ModelRequest
from gymq.processes import KillableProcesses
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Failure, FailureClass, Outcome, Task, Unresolved, VerifiedRollout
from gymq.protocol.replica_messages import Weights
from gymq.testing import prompt, reply
from tests.support.waiting import until

Deed = Callable[[], Awaitable[None]]


class Policy(gymq.Model):
    """Answers with its version; its weights are changed by setting it, as by an engine that knows its version."""

    async def respond(self, request: ModelRequest) -> dict[str, Any]:
        return reply(self.policy_version)


class Grader(gymq.Resources[gymq.Row]):
    has_judge = True

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        if not self.has_judge:
            raise RolloutError(FailureClass.JUDGE_FAILED, "no judge", retryable=False)
        return gymq.Verdict(1.0)


class Talker(gymq.Agent):
    """Asks twice; what the test wants to happen in between, happens."""

    between: list[Deed]
    asked = 0

    def journals(self, rollout: gymq.Rollout) -> bool:
        return False

    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        self.asked += 1
        await rollout.respond()
        if self.between:
            await self.between.pop(0)()
        self.asked += 1
        await rollout.respond()


class Bench:
    """A policy with versions, a grader, and an agent between them."""

    def __init__(self, bus: Bus, name: str) -> None:
        self.bus = bus
        self.name = name
        self.before: list[str] = []
        self.policy = Policy(name=f"{name}-model")
        self.grader = Grader(name=f"{name}-grader")
        references = {
            "model_server": {"type": "responses_api_models", "name": self.policy.name},
            "resources_server": {"type": "resources_servers", "name": self.grader.name},
        }
        self.agent = Talker(references, name=name)
        self.agent.between = []
        self.attempts = Attempts(bus, Calls(bus), self.agent, worker="w")

    async def update(self, *versions: str) -> None:
        """Push versions, and wait until agents know."""
        for version in versions:
            record = Weights(policy_version=version, path="x", before=list(self.before), at=time.time())
            self.before.append(version)
            await self.bus.js.store(subjects.WEIGHTS.of(self.policy.name), encode(record))
            self.policy.policy_version = version
        known = self.attempts._staleness._models.get(self.policy.name)
        if known is not None and versions:
            await until(lambda: known.newest == versions[-1])

    def updating(self, *versions: str) -> Deed:
        async def deed() -> None:
            await self.update(*versions)

        return deed

    async def outcome(self, max_staleness: int | None) -> Outcome:
        row = msgspec.json.encode(prompt("go on"))
        task = Task(
            run=self.name,
            task_index=0,
            rollout_index=0,
            agent=self.name,
            row=row,
            timeout_s=60.0,
            max_staleness=max_staleness,
        )
        outcome, _ = await self.attempts.outcome(task, 1)
        return outcome


@pytest.fixture
async def bench(bus: Bus, other_bus: Bus, run: str) -> AsyncIterator[Bench]:
    made = Bench(bus, run)
    processes = KillableProcesses()
    server = Server(other_bus, f"{run}-w")
    await server.start()
    await ModelRunner(made.policy).serve(server)
    await ResourcesRunner(made.grader, processes).serve(server)
    await other_bus.flush()
    yield made
    await server.drain(5.0)
    processes.close()


def member(outcome: Outcome) -> Any:
    """What the files of the run tell."""
    line = output_row(outcome) if isinstance(outcome, VerifiedRollout) else failure_row(outcome, 1)
    return msgspec.json.decode(line).get("policy_version")


async def test_a_rollout_of_a_model_without_versions_tells_none(bench: Bench) -> None:
    outcome = await bench.outcome(None)
    assert outcome.policy_versions == []
    assert member(outcome) is None


async def test_a_rollout_tells_the_version_that_made_it(bench: Bench) -> None:
    bench.policy.policy_version = "v1"
    outcome = await bench.outcome(None)
    assert outcome.policy_versions == ["v1"]
    assert member(outcome) == "v1"


async def test_a_rollout_tells_all_versions_that_made_it_in_order(bench: Bench) -> None:
    bench.agent.between = [bench.updating("v1")]
    outcome = await bench.outcome(None)
    assert isinstance(outcome, VerifiedRollout)
    assert outcome.policy_versions == ["", "v1"]
    assert member(outcome) == ["", "v1"]


async def test_a_rollout_that_is_not_too_old_is_stored(bench: Bench) -> None:
    await bench.update("v1")
    bench.agent.between = [bench.updating("v2", "v3")]
    outcome = await bench.outcome(2)
    assert isinstance(outcome, VerifiedRollout)
    assert (outcome.policy_versions, outcome.attempt) == (["v1", "v3"], 0)


async def test_a_rollout_that_is_too_old_is_made_again_by_the_newest(bench: Bench) -> None:
    await bench.update("v1")
    bench.agent.between = [bench.updating("v2", "v3", "v4")]
    outcome = await bench.outcome(2)
    assert isinstance(outcome, VerifiedRollout)
    assert (outcome.policy_versions, outcome.attempt) == (["v4"], 1)
    assert bench.agent.asked == 4


async def test_nothing_more_is_spent_on_a_rollout_that_is_too_old(bench: Bench) -> None:
    await bench.update("v1")
    bench.agent.between = [bench.updating("v2")]
    answered: list[str] = []
    respond = bench.policy.respond

    async def noted(request: ModelRequest) -> dict[str, Any]:
        answered.append(bench.policy.policy_version)
        return await respond(request)

    bench.policy.respond = noted  # type: ignore[method-assign]
    await bench.outcome(0)
    assert answered == ["v1", "v2", "v2"]


async def test_a_rollout_that_is_always_too_old_fails_as_stale(bench: Bench) -> None:
    await bench.update("v0")
    bench.agent.between = [bench.updating(f"v{number}") for number in range(1, 9)]
    outcome = await bench.outcome(0)
    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.retryable, outcome.attempt) == (FailureClass.STALE, True, 3)
    assert outcome.message == "begun by the policy 'v3', 1 behind 'v4'; at most 0 updates are allowed"
    assert outcome.policy_versions == ["v3"]


async def test_a_rollout_that_gets_too_old_at_its_end_is_not_stored(bench: Bench) -> None:
    await bench.update("v1")
    verify = bench.grader.verify
    updates = [bench.updating("v2")]

    async def slow(request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        if updates:
            await updates.pop()()
        return await verify(request)

    bench.grader.verify = slow  # type: ignore[method-assign]
    outcome = await bench.outcome(0)
    assert isinstance(outcome, VerifiedRollout)
    assert outcome.policy_versions == ["v2"]


async def test_a_response_without_a_verdict_is_not_kept_when_it_is_too_old(bench: Bench) -> None:
    await bench.update("v1")
    bench.grader.has_judge = False
    assert isinstance(await bench.outcome(0), Unresolved)
    verify = bench.grader.verify
    updates = [bench.updating("v2")]

    async def failing(request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        if updates:
            await updates.pop()()
            raise RolloutError(FailureClass.JUDGE_FAILED, "no judge", retryable=False)
        bench.grader.has_judge = True
        return await verify(request)

    bench.grader.verify = failing  # type: ignore[method-assign]
    outcome = await bench.outcome(0)
    assert isinstance(outcome, VerifiedRollout)
    assert outcome.policy_versions == ["v2"]


async def test_without_a_limit_no_rollout_is_too_old(bench: Bench) -> None:
    await bench.update("v1")
    bench.agent.between = [bench.updating(*(f"v{number}" for number in range(2, 12)))]
    assert isinstance(await bench.outcome(None), VerifiedRollout)


async def test_before_the_first_push_nothing_is_stale(bench: Bench) -> None:
    assert isinstance(await bench.outcome(0), VerifiedRollout)


async def test_what_was_begun_before_the_first_push_is_behind_by_all_pushes(bench: Bench) -> None:
    bench.agent.between = [bench.updating("v1")]
    outcome = await bench.outcome(0)
    assert (outcome.policy_versions, outcome.attempt) == (["v1"], 1)


@pytest.mark.parametrize(
    ("version", "behind"), [("v3", 0), ("v2", 1), ("v1", 3), ("never pushed", 4), ("", 4), ("back again", 2)]
)
async def test_how_far_a_version_is_behind(bus: Bus, run: str, version: str, behind: int) -> None:
    history = ["v1", "back again", "v2"]
    record = Weights(policy_version="v3", path="x", before=history)
    await bus.js.store(subjects.WEIGHTS.of(run), encode(record))
    staleness = Staleness(bus)
    (await staleness.limit(run, behind)).check([version, "v3"])
    if behind:
        with pytest.raises(RolloutError, match=f"{behind} behind 'v3'; at most {behind - 1} updates are allowed"):
            (await staleness.limit(run, behind - 1)).check([version, "v3"])


async def test_a_push_that_was_not_heard_is_read_after_a_reconnect(
    own_bus: Bus, kill_server: Any, own_server: Any
) -> None:
    limit = await Staleness(own_bus).limit("policy", 0)
    limit.check(["v1"])
    await kill_server()
    await own_server.start()
    pusher = await Bus.connect(own_server.url, role="test", name="pusher")
    await pusher.js.publish_with_retry(
        subjects.WEIGHTS.of("policy"),
        encode(Weights(policy_version="v2", path="x", before=["v1"])),
        {},
        patience_s=30.0,
    )
    await pusher.close()

    def is_stale() -> bool:
        try:
            limit.check(["v1"])
        except RolloutError:
            return True
        return False

    await until(is_stale)
