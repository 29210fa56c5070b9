"""A letter that is requeued becomes the rollout it should have been, and takes the place of its failure."""

import asyncio
import json
import secrets
from pathlib import Path

import msgspec
import pytest

from gymq.bus import streams
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.dead_letters import DeadLetterEntry, store_dead_letter
from gymq.data.materialise import MaterialiseOptions
from gymq.errors import UsageError
from gymq.execution.journal import Journal
from gymq.ext.shared.requeue import Requeuer, RequeueResult
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import DeadLetter, Failure, FailureClass, Generated, Stage, Submission, VerifiedRollout
from gymq.protocol.subjects import RolloutId
from gymq.responses import last_assistant_text
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan
from gymq.testing import prompt, reply
from tests.bus.queue.dead_letters.conftest import DeadLetterCluster, badly, well


async def refusal(cluster: DeadLetterCluster, entry: DeadLetterEntry) -> str:
    """Why a letter is not requeued; it is still there."""
    with pytest.raises(UsageError) as refused:
        await Requeuer(cluster.bus).requeue(entry)
    assert await cluster.letters.find(entry.number) == entry
    return str(refused.value)


async def test_a_failed_rollout_is_made_again_in_the_place_of_its_failure(cluster: DeadLetterCluster, run: str) -> None:
    entry = await cluster.fail(run)
    failed, _ = await cluster.outcome(run)
    assert await Requeuer(cluster.bus).requeue(entry) is RequeueResult.AGAIN
    _, outcome = await cluster.outcome(run, after=failed)
    assert isinstance(outcome, VerifiedRollout)
    assert outcome.reward == 1.0
    assert await cluster.letters.find(entry.number) is None


async def test_an_agent_without_a_journal_makes_it_again_too(cluster: DeadLetterCluster, run: str) -> None:
    cluster.agent.journal = False
    entry = await cluster.fail(run)
    failed, _ = await cluster.outcome(run)
    await Requeuer(cluster.bus).requeue(entry)
    _, outcome = await cluster.outcome(run, after=failed)
    assert isinstance(outcome, VerifiedRollout)


async def test_what_the_failed_attempts_had_heard_is_asked_for_again(cluster: DeadLetterCluster, run: str) -> None:
    entry = await cluster.fail(run)
    failed, _ = await cluster.outcome(run)
    journal = Journal(cluster.bus, cluster.task(run), "a process that was killed")
    await journal.take_over()

    async def heard() -> Generated:
        return Generated(response=reply("stale"))

    await journal.effect("generate 1", False, heard)
    await Requeuer(cluster.bus).requeue(entry)
    _, outcome = await cluster.outcome(run, after=failed)
    assert isinstance(outcome, VerifiedRollout)
    assert last_assistant_text(outcome.response) == "done"


async def test_a_replay_that_fails_is_a_new_letter(cluster: DeadLetterCluster, run: str) -> None:
    first = await cluster.fail(run)
    failed, _ = await cluster.outcome(run)
    cluster.agent.end = badly
    await Requeuer(cluster.bus).requeue(first)
    await cluster.outcome(run, after=failed)
    (second,) = await cluster.dead_letters(run)
    assert second.number > first.number
    assert second.letter.rollout == first.letter.rollout


async def test_a_rollout_that_has_a_reward_by_now_is_not_made_again(cluster: DeadLetterCluster, run: str) -> None:
    entry = await cluster.fail(run)
    failed, _ = await cluster.outcome(run)
    task = cluster.task(run)
    rewarded = VerifiedRollout(
        run=run, task_index=0, rollout_index=0, agent=task.agent, row=task.row, response=reply("x"), reward=0.5
    )
    assert await cluster.outcomes.put(rewarded, replaces=failed, patience_s=5.0)
    await cluster.stop_serving()
    assert await Requeuer(cluster.bus).requeue(entry) is RequeueResult.REWARDED
    assert await cluster.waiting(run) == 0
    assert await cluster.letters.find(entry.number) is None


async def test_a_letter_that_is_given_back_twice_is_one_task(cluster: DeadLetterCluster, run: str) -> None:
    entry = await cluster.fail(run)
    await cluster.stop_serving()
    for _ in range(2):
        assert await Requeuer(cluster.bus).requeue(entry) is RequeueResult.AGAIN
    assert await cluster.waiting(run) == 1


async def test_a_rollout_that_a_collection_retries_is_not_made_twice(cluster: DeadLetterCluster, run: str) -> None:
    entry = await cluster.fail(run)
    failed, _ = await cluster.outcome(run)
    await cluster.stop_serving()
    await QueueClient(cluster.bus).submit(msgspec.structs.replace(cluster.task(run), replaces=failed))
    assert await Requeuer(cluster.bus).requeue(entry) is RequeueResult.AGAIN
    assert await cluster.waiting(run) == 1
    assert await cluster.letters.find(entry.number) is None


async def test_an_urgent_task_is_urgent_again(cluster: DeadLetterCluster, run: str) -> None:
    cluster.agent.end = badly
    await cluster.submit(cluster.task(run), urgent=True)
    (entry,) = await cluster.dead_letters(run)
    await cluster.stop_serving()
    await Requeuer(cluster.bus).requeue(entry)
    counts = await cluster.js.count_by_subject(streams.TASKS, subjects.URGENT_TASK.of(run))
    assert counts == {subjects.URGENT_TASK.of(run, cluster.name): 1}


async def test_a_large_task_is_given_back_whole(cluster: DeadLetterCluster, run: str) -> None:
    padding = secrets.token_urlsafe(cluster.bus.max_body_bytes)
    cluster.agent.end = badly
    await cluster.submit(cluster.task(run, row={"padding": padding}))
    (entry,) = await cluster.dead_letters(run)
    failed, _ = await cluster.outcome(run)
    cluster.agent.end = well
    await Requeuer(cluster.bus).requeue(entry)
    _, outcome = await cluster.outcome(run, after=failed)
    assert json.loads(outcome.row)["padding"] == padding


async def test_a_rollout_whose_agent_does_not_run_stays(cluster: DeadLetterCluster, run: str) -> None:
    task = msgspec.structs.replace(cluster.task(run), agent="absent")
    letter = DeadLetter(subject=f"gym.tasks.{run}.nobody", reason="no", body=encode(task), at=1.0, rollout=f"{run}/0/0")
    stored = await cluster.js.store(subjects.DEAD_LETTER_OF_RUN.of("agent", run), encode(letter))
    failed = Failure(
        run=run,
        task_index=0,
        rollout_index=0,
        agent="absent",
        row=task.row,
        failure_class=FailureClass.AGENT_FAILED,
        stage=Stage.AGENT,
        message="no",
    )
    await cluster.outcomes.put(failed, replaces=None, patience_s=5.0)
    assert "no agent named 'absent' is running" in await refusal(cluster, DeadLetterEntry(stored.seq, letter))


async def test_a_rollout_of_a_cancelled_run_stays(cluster: DeadLetterCluster, run: str) -> None:
    entry = await cluster.fail(run)
    await QueueClient(cluster.bus).cancel(run)
    assert await refusal(cluster, entry) == "it was cancelled"


async def test_a_task_that_was_cancelled_stays(cluster: DeadLetterCluster, run: str) -> None:
    entry = await cluster.fail(run)
    await QueueClient(cluster.bus).mark_cancelled(run, 0)
    assert await refusal(cluster, entry) == "it was cancelled"


async def test_requeueing_leaves_nothing_behind_on_the_connection(cluster: DeadLetterCluster, run: str) -> None:
    """That of a bridge lives as long as the bridge."""
    entry = await cluster.fail(run)
    num_subscriptions = len(cluster.bus._nc._subs)
    num_callbacks = len(cluster.bus._on_reconnect)
    await Requeuer(cluster.bus).requeue(entry)
    assert len(cluster.bus._nc._subs) == num_subscriptions
    assert len(cluster.bus._on_reconnect) == num_callbacks


async def test_a_rollout_whose_failure_is_not_stored_any_more_stays(cluster: DeadLetterCluster, run: str) -> None:
    entry = await cluster.fail(run)
    await cluster.js.api(f"STREAM.PURGE.{streams.ROLLOUTS}", {"filter": subjects.ROLLOUT.below(run)})
    assert "no longer has an outcome of it" in await refusal(cluster, entry)


async def test_what_nobody_can_read_stays(cluster: DeadLetterCluster, run: str) -> None:
    await store_dead_letter(
        cluster.bus, "agent", f"gym.tasks.{run}.x", "not a task", b"{", sequence=secrets.randbits(40)
    )
    found = [entry async for entry in cluster.letters.read()]
    assert "it is unreadable" in await refusal(cluster, found[-1])


async def test_a_submission_becomes_rollouts_once_its_agent_is_there(cluster: DeadLetterCluster, run: str) -> None:
    late = DeadLetterCluster(cluster.bus, f"late{secrets.token_hex(6)}")
    row = msgspec.Raw(msgspec.msgpack.encode(prompt("say done")))
    submission = Submission(run=run, row=row, agent=late.name, task_index=0)
    await cluster.js.store(subjects.SUBMISSION.pattern, encode(submission))
    (entry,) = await cluster.dead_letters(run)
    await late.open()
    assert await Requeuer(cluster.bus).requeue(entry) is RequeueResult.AGAIN
    _, outcome = await cluster.outcome(run)
    assert isinstance(outcome, VerifiedRollout)
    await late.close()


async def test_a_later_collection_of_the_run_has_the_replayed_rollout(
    cluster: DeadLetterCluster, tmp_path: Path
) -> None:
    rows = [{**prompt(text), "agent_ref": {"name": cluster.name}} for text in ("good", "bad")]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = CollectOptions(
        input=tmp_path / "in.jsonl", output=tmp_path / "out.jsonl", materialise=MaterialiseOptions()
    )
    cluster.agent.end = lambda rollout: badly(rollout) if b'"bad"' in rollout.row else None
    progress = await Collection(cluster.bus, RunPlan(options)).run()
    assert (progress.done, progress.failed) == (1, 1)
    (entry,) = await cluster.dead_letters(progress.run)
    failed, _ = await cluster.outcome(progress.run, 1)

    cluster.agent.end = well
    await Requeuer(cluster.bus).requeue(entry)
    await cluster.outcome(progress.run, 1, after=failed)
    progress = await Collection(cluster.bus, RunPlan(options)).run()
    assert (progress.done, progress.failed, progress.submitted) == (2, 0, 0)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(line["_ng_task_index"] for line in lines) == [0, 1]


async def test_reading_ends_although_new_letters_keep_coming(cluster: DeadLetterCluster, run: str) -> None:
    async def one_more(number: int) -> None:
        await store_dead_letter(
            cluster.bus, "agent", "gym.tasks", "no", b"", sequence=secrets.randbits(40), of=RolloutId(run, number, 0)
        )

    await asyncio.gather(*(one_more(number) for number in range(300)))  # more than are read at once
    count = 0
    async for _ in cluster.letters.read(run):
        await one_more(300 + count)
        count += 1
        assert count <= 300
    assert count == 300
