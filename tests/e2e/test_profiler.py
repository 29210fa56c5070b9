"""A run's live statistics are those that its outcomes give, whatever happens to the process that computes them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gymq.cluster.process_spec import ProcessSpec
from gymq.data.materialise import MaterialiseOptions
from gymq.execution.services.profiler import last_profile, read_profile
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Failure, FailureClass, Outcome, Profile, Run, Stage, VerifiedRollout
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan
from gymq.runs.stored_runs import Runs
from gymq.stats.outcome_feed import add_outcome
from gymq.stats.running import ProfileSnapshot, RunningProfile
from tests.support.waiting import until_answer

from .running_cluster import RunningCluster, row

pytestmark = pytest.mark.asyncio(loop_scope="session")

NUM_TASKS, NUM_ROLLOUTS = 40, 3


async def submit(cluster: RunningCluster, run: str) -> None:
    """Rollouts right, wrong and failing, which take between nothing and a second."""
    for rollout_index in range(NUM_ROLLOUTS):
        for task_index in range(NUM_TASKS):
            reward = float((task_index + rollout_index) % 3 == 0)
            script: dict[str, Any] = {"reward": reward, "model_s": task_index / 40}
            if task_index % 10 == 9:
                script["model_nonsense"] = True
            content = row(f"{run} {task_index} {rollout_index}", script=script)
            await cluster.submit_task(run, "asker", content, (task_index, rollout_index), num_rollouts=NUM_ROLLOUTS)


async def check_statistics(cluster: RunningCluster, run: str) -> None:
    """The live statistics agree with those of the stored outcomes, once all are in."""
    await cluster.outcomes(run, NUM_TASKS * NUM_ROLLOUTS)
    profile = RunningProfile()
    outcomes = sorted(await cluster.stored(run), key=lambda outcome: (outcome.task_index, outcome.rollout_index))
    for sequence, outcome in enumerate(outcomes, 1):
        add_outcome(profile, sequence, outcome)
    expected = msgspec.to_builtins(profile.snapshot().agents["asker"], str_keys=True)
    found: Any = None
    for _ in range(100):
        checkpoint = await read_profile(cluster.js, run)
        if checkpoint is not None:
            snapshot = msgspec.convert(checkpoint.snapshot, ProfileSnapshot, str_keys=True)
            found = msgspec.to_builtins(snapshot.agents["asker"], str_keys=True)
            if (found["rollouts"], found["failures"]) == (expected["rollouts"], expected["failures"]):
                break
        await asyncio.sleep(0.1)
    assert found == approximately(expected)


def approximately(value: Any) -> Any:
    """Equal but for the rounding of sums that were added up in another order."""
    if isinstance(value, dict):
        return {key: approximately(member) for key, member in value.items()}
    if isinstance(value, list):
        return [approximately(element) for element in value]
    return pytest.approx(value, nan_ok=True) if isinstance(value, float) else value


@pytest.mark.nightly
async def test_a_profiler_that_is_killed_again_and_again_counts_everything_once(
    cluster: RunningCluster, run: str
) -> None:
    await submit(cluster, run)
    for count in (30, 60, 90):
        await cluster.outcomes(run, count)
        restarts = cluster.child("services").restarts
        cluster.kill("services")
        await cluster.until_restarted("services", restarts)
    await check_statistics(cluster, run)


@pytest.mark.nightly
async def test_the_server_may_be_killed_while_statistics_are_computed(cluster: RunningCluster, run: str) -> None:
    await submit(cluster, run)
    for count in (30, 80):
        await cluster.outcomes(run, count)
        await cluster.kill_server()
    await check_statistics(cluster, run)


@pytest.mark.nightly
async def test_two_profilers_at_once_count_everything_once(cluster: RunningCluster, run: str) -> None:
    await submit(cluster, run)
    second = await cluster.start("second_services", ProcessSpec(cluster.url, "services", services=True, drain_s=2.0))
    try:
        await cluster.outcomes(run, 60)
        cluster.kill("services")
        await check_statistics(cluster, run)
    finally:
        await second.stop()


async def test_live_statistics_are_those_of_the_outcomes_and_continue_from_their_last_checkpoint(
    cluster: RunningCluster, run: str
) -> None:
    assert (await last_profile(cluster.js, run))[1] == 0
    await submit(cluster, run)
    await check_statistics(cluster, run)
    profile, sequence = await last_profile(cluster.js, run)
    found = msgspec.to_builtins(profile.snapshot().agents["asker"], str_keys=True)
    checkpoint = await read_profile(cluster.js, run)
    assert checkpoint is not None
    assert found == approximately(checkpoint.snapshot["agents"]["asker"])
    assert sequence == await Runs(cluster.bus).last_sequence(run)


async def test_a_run_that_was_given_more_repeats_is_counted_again(cluster: RunningCluster, tmp_path: Path) -> None:
    rows = [row(f"{tmp_path} {number}", script={"reward": float(number)}) for number in (0, 1)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(content) + "\n" for content in rows))

    async def collect(num_repeats: int) -> str:
        materialise = MaterialiseOptions(agent_name="asker", num_repeats=num_repeats)
        options = CollectOptions(tmp_path / "rows.jsonl", tmp_path / "rollouts.jsonl", materialise)
        return (await Collection(cluster.bus, RunPlan(options)).run()).run

    async def until_profiled(run: str, num_rollouts: int) -> Any:
        checkpoint = await until_answer(
            lambda: read_profile(cluster.js, run),
            lambda found: found is not None and found.snapshot["agents"]["asker"]["rollouts"] == num_rollouts,
        )
        assert checkpoint is not None
        return checkpoint.snapshot

    run = await collect(2)
    await until_profiled(run, 4)
    assert await collect(4) == run
    snapshot = await until_profiled(run, 8)
    agent = snapshot["agents"]["asker"]
    assert (agent["max_k"], agent["tasks"], snapshot["open_tasks"]) == (4, 2, 0)
    assert [agent["pass_at_k"][k]["value"] for k in ("1", "4")] == [50.0, 50.0]
    profile, _ = await last_profile(cluster.js, run)
    assert profile.snapshot().agents["asker"].rollouts == 8


@pytest.mark.nightly
async def test_a_checkpoint_from_before_a_run_was_extended_is_not_used(cluster: RunningCluster, run: str) -> None:
    await submit(cluster, run)
    await check_statistics(cluster, run)
    record = Run(run=run, created_at=1.0, extended_to=2 * NUM_ROLLOUTS)
    await cluster.js.publish_with_retry(subjects.RUN.of(run), encode(record), {}, patience_s=30)
    profile, sequence = await last_profile(cluster.js, run)
    assert (sequence, profile.snapshot().agents) == (0, {})
    assert profile.knows_extension(2 * NUM_ROLLOUTS)


async def test_a_final_failure_that_is_requeued_is_counted_as_what_it_is_now(cluster: RunningCluster, run: str) -> None:
    async def put(made: Outcome, replaces: int | None = None) -> None:
        assert await cluster.outcome_store.put(made, replaces=replaces, patience_s=30.0)

    def failed(failure_class: FailureClass) -> Failure:
        return Failure(**common, failure_class=failure_class, stage=Stage.VERIFY, message="", retryable=False)

    async def until_counted(rollouts: int, failures: dict[str, int]) -> Any:
        def is_it(found: Profile | None) -> bool:
            agent = None if found is None else found.snapshot["agents"]["asker"]
            return agent is not None and (agent["rollouts"], agent["failures"]) == (rollouts, failures)

        checkpoint = await until_answer(lambda: read_profile(cluster.js, run), is_it)
        assert checkpoint is not None
        return checkpoint.snapshot["agents"]["asker"]

    common: dict[str, Any] = {"run": run, "task_index": 0, "rollout_index": 0, "agent": "asker", "row": b"{}"}
    common["num_rollouts"] = 2
    await put(VerifiedRollout(**common | {"rollout_index": 1}, response={"output": []}, reward=0.0))
    await put(failed(FailureClass.INVALID_TASK))
    await until_counted(1, {"invalid_task": 1})
    for outcome, counts in (
        (failed(FailureClass.VERIFIER_FAILED), (1, {"verifier_failed": 1})),
        (VerifiedRollout(**common, response={"output": []}, reward=1.0), (2, {})),
    ):
        stored = await cluster.outcome_store.find(run, 0, 0)
        assert stored is not None
        await put(outcome, stored.sequence)
        profiled = await until_counted(*counts)
    assert profiled["mean_reward"]["value"] == 0.5
    assert profiled["failed_attempts"] == {"invalid_task": 1, "verifier_failed": 1}
