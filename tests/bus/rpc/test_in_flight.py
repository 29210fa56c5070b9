"""On a weight update, running rollouts continue, start over, or finish under the old version, as the push asks for."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

import gymq
from gymq.bus import Bus, connection
from gymq.bus.discovery import ServiceListing, find_workers
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.serving import Server
from gymq.bus.weights import Pushed, holding, push
from gymq.data.records import Record
from gymq.data.trainer_results import encode_result
from gymq.defaults import InFlight
from gymq.execution.attempts import Attempts
from gymq.execution.model_runner import ModelRunner
from gymq.execution.resources_runner import ResourcesRunner
from gymq.failures import RolloutError
from gymq.model import ModelRequest, WeightsUpdate
from gymq.processes import KillableProcesses
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Failure, FailureClass, Outcome, Task, VerifiedRollout
from gymq.protocol.replica_messages import Hold
from gymq.testing import prompt, reply
from tests.bus.weights.test_weights import safetensors
from tests.support.waiting import until

TOKENS = 4  # of each reply


class Typist(gymq.Model):
    """Samples tokens one at a time, each when the test allows it, and notes by which weights."""

    notes_versions = True

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.allowed = asyncio.Semaphore(0)
        self.num_sampled = 0

    async def respond(self, request: ModelRequest) -> dict[str, Any]:
        sampled: list[list[Any]] = []
        for _ in range(TOKENS):
            await self.allowed.acquire()
            self.num_sampled += 1
            if sampled and sampled[-1][0] == self.policy_version:
                sampled[-1][1] += 1
            else:
                sampled.append([self.policy_version, 1])
        answer = reply("words")
        before = [item for item in request.params["input"] if item.get("generation_token_ids")]
        seen = [*before[-1]["prompt_token_ids"], *before[-1]["generation_token_ids"]] if before else []
        answer["output"][-1] |= {
            "prompt_token_ids": [*seen, 1],
            "generation_token_ids": [2] * TOKENS,
            "generation_log_probs": [-1.0] * TOKENS,
        }
        if self.notes_versions:
            answer["output"][-1]["generation_policy_versions"] = sampled
        return answer

    async def load_weights(self, update: WeightsUpdate) -> None:
        pass

    def type(self, count: int = 1000) -> None:
        for _ in range(count):
            self.allowed.release()


class Passing(gymq.Resources[gymq.Row]):
    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        return gymq.Verdict(1.0)


class TwoTurns(gymq.Agent):
    """Asks twice."""

    asked = 0

    def journals(self, rollout: gymq.Rollout) -> bool:
        return False

    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        for _ in range(2):
            self.asked += 1
            await rollout.respond()


class World:
    """A policy with weights, an environment, and an agent between them that reports as a worker does."""

    def __init__(self, bus: Bus, name: str) -> None:
        self.bus = bus
        self.name = name
        self.policy = Typist(name=f"{name}-model")
        references = {
            "model_server": {"type": "responses_api_models", "name": self.policy.name},
            "resources_server": {"type": "resources_servers", "name": f"{name}-env"},
        }
        self.agent = TwoTurns(references, name=name)
        self.attempts = Attempts(bus, Calls(bus), self.agent, worker="w")

    def rollout(self, index: int = 0) -> asyncio.Task[Outcome]:
        task = Task(
            run=self.name,
            task_index=index,
            rollout_index=0,
            agent=self.name,
            row=msgspec.json.encode(prompt("go on")),
            timeout_s=60.0,
        )

        async def outcome() -> Outcome:
            return (await self.attempts.outcome(task, 1))[0]

        return asyncio.create_task(outcome())

    def push(self, version: str, in_flight: InFlight, **options: Any) -> asyncio.Task[Pushed]:
        weights = safetensors(version.encode())
        return asyncio.create_task(
            push(self.bus, self.policy.name, version, weights=weights, in_flight=in_flight, **options)
        )

    async def until_sampled(self, count: int) -> None:
        await until(lambda: self.policy.num_sampled == count)


@pytest.fixture
async def world(bus: Bus, shared_url: str, run: str) -> AsyncIterator[World]:
    made = World(bus, run)
    processes = KillableProcesses()
    async with AsyncExitStack() as stack:
        stack.callback(processes.close)
        # A push asks a silent replica by its role whether it is there.
        other_bus = await Bus.connect(shared_url, role="model", name=f"{run}-w")
        stack.push_async_callback(other_bus.close)
        server = Server(other_bus, f"{run}-w")
        await server.start()
        stack.push_async_callback(server.drain, 5.0)
        runner = ModelRunner(made.policy)
        await runner.serve(server)
        stack.push_async_callback(runner.stop)
        await ResourcesRunner(Passing(name=f"{run}-env"), processes).serve(server)
        for name, kind, stats in (
            (made.policy.name, "models", runner.stats),
            (made.name, "agents", made.attempts.begun),
        ):
            listing = ServiceListing(
                other_bus, name=name, worker=f"{run}-w", kind=kind, implementation="x", subjects=["x"], stats=stats
            )
            await listing.start()
        await other_bus.flush()
        yield made


def versions(outcome: Outcome) -> list[str | None]:
    """The version of each sampled token, as a trainer reads it."""
    record = record_of(outcome)
    assert len(record.policy_versions) == len(record.token_ids)
    return [version for version, one in zip(record.policy_versions, record.is_sampled(), strict=True) if one]


def record_of(outcome: Outcome) -> Record:
    assert isinstance(outcome, VerifiedRollout), outcome
    return Record.of(msgspec.json.decode(encode_result(outcome, "error")))


async def test_a_rollout_that_continues_tells_for_each_token_which_weights_sampled_it(world: World) -> None:
    await world.push("v1", "continue")
    rolling = world.rollout()
    world.policy.type(3)
    await world.until_sampled(3)
    await world.push("v2", "continue")
    world.policy.type(3)
    await world.until_sampled(6)
    await world.push("v3", "continue")
    world.policy.type()
    outcome = await rolling
    assert outcome.policy_versions == ["v1", "v2", "v3"]
    assert versions(outcome) == ["v1"] * 3 + ["v2"] * 3 + ["v3"] * 2
    assert (outcome.attempt, world.agent.asked) == (0, 2)


async def test_where_a_model_does_not_note_it_the_tokens_of_such_a_call_have_no_version(world: World) -> None:
    world.policy.notes_versions = False
    await world.push("v1", "continue")
    rolling = world.rollout()
    world.policy.type(3)
    await world.until_sampled(3)
    await world.push("v2", "continue")
    world.policy.type()
    outcome = await rolling
    assert outcome.policy_versions == ["v1", "v2"]
    assert versions(outcome) == [None] * TOKENS + ["v2"] * TOKENS


async def test_a_policy_without_versions_has_none_for_its_tokens(world: World) -> None:
    world.policy.type()
    outcome = await world.rollout()
    assert record_of(outcome).policy_versions == []
    assert "generation_policy_versions" not in str(outcome.response)  # type: ignore[union-attr]


async def test_a_rollout_that_restarts_is_made_by_the_new_weights_alone(world: World) -> None:
    await world.push("v1", "continue")
    rolling = world.rollout()
    world.policy.type(TOKENS + 1)  # in the middle of the second turn
    await world.until_sampled(TOKENS + 1)
    assert (await world.push("v2", "restart")).is_complete
    world.policy.type()
    outcome = await rolling
    assert versions(outcome) == ["v2"] * (2 * TOKENS)
    assert outcome.attempt == 1


async def test_a_rollout_restarts_though_its_agent_learns_only_of_the_push_after_that(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.push("v1", "continue")
    rolling = world.rollout()
    world.policy.type(TOKENS + 1)
    await world.until_sampled(TOKENS + 1)
    read = world.bus.js.last
    both_are_stored = asyncio.Event()

    async def late(*arguments: Any, **options: Any) -> Any:
        """Read as an agent whose connection was lost during the pushes."""
        if asyncio.current_task() not in pushing:
            await both_are_stored.wait()
        return await read(*arguments, **options)

    monkeypatch.setattr(world.bus.js, "last", late)
    pushing = [world.push("v2", "restart")]
    await pushing[0]
    pushing.append(world.push("v3", "continue"))
    await pushing[1]
    both_are_stored.set()
    world.policy.type()
    outcome = await rolling
    assert versions(outcome) == ["v3"] * (2 * TOKENS)


@pytest.mark.parametrize("in_flight", ["restart", "finish"])
async def test_a_version_that_is_pushed_again_lets_rollouts_continue_if_this_push_does(
    world: World, in_flight: InFlight
) -> None:
    await world.attempts.start()
    await world.push("v1", "continue")
    await world.push("v2", in_flight)
    for version in ("v3", "v4"):
        await world.push(version, "continue")
    rolling = world.rollout()
    world.policy.type(3)
    await world.until_sampled(3)
    await world.push("v2", "continue")
    await until(lambda: world.attempts._staleness._models[world.policy.name].newest == "v2")
    world.policy.type()
    outcome = await rolling
    assert (outcome.attempt, outcome.policy_versions) == (0, ["v4", "v2"])
    limit = await world.attempts._staleness.limit(world.policy.name, None)
    with pytest.raises(RolloutError, match="with the update to"):
        limit.check(["v1", "v2"])
    limit.check(["v3", "v2"])


async def test_a_rollout_that_did_not_finish_starts_over_though_another_push_follows(world: World) -> None:
    await world.push("v1", "continue")
    rolling = world.rollout()
    world.policy.type(1)
    await world.until_sampled(1)
    await world.push("v2", "finish", deadline_s=0.5)
    await world.push("v3", "continue")
    world.policy.type()
    outcome = await rolling
    assert versions(outcome) == ["v3"] * (2 * TOKENS)


async def test_a_rollout_that_restarts_begins_when_the_weights_are_loaded(world: World) -> None:
    go = asyncio.Event()

    async def slow(update: WeightsUpdate) -> None:
        await go.wait()

    await world.push("v1", "continue")
    world.policy.load_weights = slow  # type: ignore[method-assign]
    rolling = world.rollout()
    await until(lambda: world.attempts.begun()["begun"]["num_begun"] == 1)
    pushing = world.push("v2", "restart")
    await until(
        lambda: world.attempts.begun()["begun"] == {"model": world.policy.name, "num_begun": 0, "is_held": True}
    )
    assert world.agent.asked == 2  # the second attempt waits with its first call
    go.set()
    await pushing
    world.policy.type()
    assert versions(await rolling) == ["v2"] * (2 * TOKENS)


async def test_a_rollout_that_finishes_has_the_old_version_and_the_next_one_the_new(world: World) -> None:
    await world.push("v1", "continue")
    rolling = world.rollout()
    world.policy.type(1)
    await world.until_sampled(1)
    pushing = world.push("v2", "finish")
    await until(lambda: world.attempts.begun()["begun"]["is_held"])
    late = world.rollout(1)
    await until(lambda: world.agent.asked == 2)  # it waits with its first call
    assert not pushing.done()
    assert world.policy.policy_version == "v1"
    world.policy.type(2 * TOKENS - 1)
    outcome = await rolling
    assert (versions(outcome), outcome.attempt) == (["v1"] * (2 * TOKENS), 0)
    assert (await pushing).is_complete
    world.policy.type()
    assert versions(await late) == ["v2"] * (2 * TOKENS)


async def test_a_rollout_that_does_not_finish_in_time_starts_over(world: World) -> None:
    await world.push("v1", "continue")
    rolling = world.rollout()
    world.policy.type(1)
    await world.until_sampled(1)
    assert (await world.push("v2", "finish", deadline_s=0.5)).policy_version == "v2"
    await until(lambda: world.policy.policy_version == "v2")
    world.policy.type()
    outcome = await rolling
    assert (versions(outcome), outcome.attempt) == (["v2"] * (2 * TOKENS), 1)


async def test_updates_that_always_come_first_end_as_stale(world: World) -> None:
    await world.push("v0", "continue")
    rolling = world.rollout()
    for number in range(1, 5):
        before = world.policy.num_sampled
        world.policy.type(1)
        await world.until_sampled(before + 1)
        await world.push(f"v{number}", "restart")
    outcome = await rolling
    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.attempt, outcome.retryable) == (FailureClass.STALE, 3, True)
    assert outcome.message == "begun before; with the update to 'v4' rollouts restart"


async def test_rollouts_begin_again_when_the_pusher_died(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "EXPIRES_S", 0.5)
    await world.push("v1", "continue")
    world.policy.type(1)
    rolling = world.rollout()
    await world.until_sampled(1)
    published = world.bus.publish
    pushing = world.push("v2", "finish")
    await until(lambda: world.attempts.begun()["begun"]["is_held"])

    async def is_dead(subject: str, *arguments: Any, **options: Any) -> None:
        if subject != subjects.HOLD.of(world.policy.name):
            await published(subject, *arguments, **options)

    world.bus.publish = is_dead  # type: ignore[method-assign]
    pushing.cancel()
    late = world.rollout(1)
    world.policy.type()
    assert versions(await late) == ["v1"] * (2 * TOKENS)
    assert versions(await rolling) == ["v1"] * (2 * TOKENS)
    world.bus.publish = published  # type: ignore[method-assign]


async def test_a_hold_that_is_not_one_is_ignored(world: World) -> None:
    world.policy.type()
    await world.rollout()
    for body in (b"\xff", encode(Hold(for_s=60.0))[:-2], b'{"type": "hold.v1", "for_s": 1e9}'):
        await world.bus.publish(subjects.HOLD.of(world.policy.name), body)
    assert versions_known(await world.rollout(1)) == []


def versions_known(outcome: Outcome) -> list[str | None]:
    return record_of(outcome).policy_versions


@pytest.mark.parametrize(
    "noted",
    [
        [["v1", TOKENS - 1]],
        [["v1", TOKENS], ["v2", 0]],
        [["v1", -1], ["v2", TOKENS + 1]],
        [["v1"]],
        "v1",
        [[7, TOKENS]],
    ],
)
async def test_notes_of_a_model_that_do_not_fit_its_tokens_are_its_failure(world: World, noted: Any) -> None:
    respond: Callable[[ModelRequest], Awaitable[dict[str, Any]]] = world.policy.respond

    async def wrong(request: ModelRequest) -> dict[str, Any]:
        answer = await respond(request)
        answer["output"][-1]["generation_policy_versions"] = noted
        return answer

    world.policy.respond = wrong  # type: ignore[method-assign]
    world.policy.type()
    outcome = await world.rollout()
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.MODEL_FAILED
    assert "output[0].generation_policy_versions" in outcome.message


async def test_after_first_weights_that_no_replica_loads_rollouts_begin_as_before(world: World) -> None:
    async def refuse(update: WeightsUpdate) -> None:
        raise ValueError("of another shape")

    world.policy.load_weights = refuse  # type: ignore[method-assign]
    world.policy.type()
    await world.rollout()
    assert (await world.push("v1", "restart")).taken_back
    assert isinstance(await world.rollout(1), VerifiedRollout)


async def test_a_push_that_is_taken_back_starts_no_rollout_over_again(world: World) -> None:
    await world.push("v1", "restart")
    rolling = world.rollout()
    world.policy.type(1)
    await world.until_sampled(1)

    async def refuse(update: WeightsUpdate) -> None:
        raise ValueError("of another shape")

    world.policy.load_weights = refuse  # type: ignore[method-assign]
    assert (await world.push("v2", "continue")).taken_back
    world.policy.type()
    outcome = await rolling
    assert (versions(outcome), outcome.attempt) == (["v1"] * (2 * TOKENS), 0)


async def test_a_rollout_that_restarts_has_no_tokens_of_a_replica_that_refused_the_update(world: World) -> None:
    await world.push("v1", "continue")
    await world.push("v2", "restart")
    world.policy.type(TOKENS)
    rolling = world.rollout()
    await world.until_sampled(TOKENS)
    await until(lambda: world.agent.asked == 2)
    world.policy.policy_version = "v1"  # as if another replica took the second turn
    world.policy.type(TOKENS)
    await world.until_sampled(2 * TOKENS)
    world.policy.policy_version = "v2"
    world.policy.type()
    assert versions(await rolling) == ["v2"] * (2 * TOKENS)


async def test_a_rollout_that_crossed_an_update_starts_over_though_it_ends_after_the_next(world: World) -> None:
    verifying, may_end = asyncio.Event(), asyncio.Event()
    respond = world.agent.converse

    async def linger(rollout: gymq.Rollout, session: gymq.Session) -> None:
        await respond(rollout, session)
        if world.agent.asked == 2:
            verifying.set()
            await may_end.wait()

    world.agent.converse = linger  # type: ignore[method-assign]
    await world.push("v1", "continue")
    rolling = world.rollout()
    world.policy.type(TOKENS + 1)
    await world.until_sampled(TOKENS + 1)
    await world.push("v2", "finish", deadline_s=0.5)
    world.policy.type()
    await asyncio.wait([asyncio.ensure_future(verifying.wait()), rolling], return_when=asyncio.FIRST_COMPLETED)
    if not rolling.done():
        await world.push("v3", "finish", deadline_s=0.5)
    may_end.set()
    outcome = await rolling
    assert len(set(versions(outcome))) == 1


async def test_agents_that_cannot_be_heard_during_an_outage_may_finish_their_rollouts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SETTLING_S", 1000.0)
    monkeypatch.setattr(holding, "GONE_S", 0.1)

    def away(found: list[dict[str, Any]], look: int) -> list[dict[str, Any]]:
        world.bus._reconnected_at = time.monotonic() if 2 <= look <= 4 else -math.inf
        return found if world.bus.is_stable else []

    await finish_while_unheard(world, monkeypatch, away, num_looks=4)


async def test_an_agent_that_is_slow_to_answer_may_finish_its_rollouts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missed(found: list[dict[str, Any]], look: int) -> list[dict[str, Any]]:
        return [stats for stats in found if stats["name"] != world.name or look != 2]

    await finish_while_unheard(world, monkeypatch, missed, num_looks=2)


async def finish_while_unheard(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    heard: Callable[[list[dict[str, Any]], int], list[dict[str, Any]]],
    *,
    num_looks: int,
) -> None:
    """Push with `finish`; the rollout in flight ends after so many looks, of which `heard` lets some pass."""
    await world.push("v1", "continue")
    rolling = world.rollout()
    world.policy.type(1)
    await world.until_sampled(1)
    looks = 0

    async def find(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
        nonlocal looks
        looks += 1
        return heard(await find_workers(*arguments, **options), looks)

    monkeypatch.setattr(holding, "find_workers", find)
    pushing = world.push("v2", "finish")
    await until(lambda: looks > num_looks or pushing.done())
    world.policy.type()
    outcome = await rolling
    assert (versions(outcome), outcome.attempt) == (["v1"] * (2 * TOKENS), 0)
    await pushing
