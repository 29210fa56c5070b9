"""A letter that is given back becomes the rollout it should have been, and takes the place of its failure."""

import asyncio
import json
import secrets
from pathlib import Path

import msgspec
import pytest

from gymq import streams, subjects
from gymq.cancel import cancel
from gymq.collect import Collection, CollectOptions
from gymq.dead_letters import Buried, bury
from gymq.journal import Journal
from gymq.materialise import MaterialiseOptions
from gymq.messages import DeadLetter, Failure, Generated, Rollout, Submission, encode
from gymq.replay import NotReplayed, Replay, Replayed
from gymq.responses import last_assistant_text
from gymq.testing import prompt, reply

from .conftest import Workshop, badly, well


async def refusal(workshop: Workshop, buried: Buried) -> str:
    """Why a letter is not given back; it is still there."""
    with pytest.raises(NotReplayed) as refused:
        await Replay(workshop.bus).replay(buried)
    assert await workshop.letters.find(buried.number) == buried
    return str(refused.value)


async def test_a_failed_rollout_is_made_again_in_the_place_of_its_failure(workshop: Workshop, run: str) -> None:
    buried = await workshop.fail(run)
    failed, _ = await workshop.outcome(run)
    assert await Replay(workshop.bus).replay(buried) is Replayed.AGAIN
    _, outcome = await workshop.outcome(run, after=failed)
    assert isinstance(outcome, Rollout)
    assert outcome.reward == 1.0
    assert await workshop.letters.find(buried.number) is None


async def test_an_agent_without_a_journal_makes_it_again_too(workshop: Workshop, run: str) -> None:
    workshop.agent.journal = False
    buried = await workshop.fail(run)
    failed, _ = await workshop.outcome(run)
    await Replay(workshop.bus).replay(buried)
    _, outcome = await workshop.outcome(run, after=failed)
    assert isinstance(outcome, Rollout)


async def test_what_the_failed_attempts_had_heard_is_asked_for_again(workshop: Workshop, run: str) -> None:
    buried = await workshop.fail(run)
    failed, _ = await workshop.outcome(run)
    journal = Journal(workshop.bus, workshop.task(run), "a process that was killed")
    await journal.take_over()

    async def heard() -> Generated:
        return Generated(response=reply("stale"))

    await journal.effect("generate 1", False, heard)
    await Replay(workshop.bus).replay(buried)
    _, outcome = await workshop.outcome(run, after=failed)
    assert isinstance(outcome, Rollout)
    assert last_assistant_text(outcome.response) == "done"


async def test_a_replay_that_fails_is_a_new_letter(workshop: Workshop, run: str) -> None:
    first = await workshop.fail(run)
    failed, _ = await workshop.outcome(run)
    workshop.agent.end = badly
    await Replay(workshop.bus).replay(first)
    await workshop.outcome(run, after=failed)
    (second,) = await workshop.buried(run)
    assert second.number > first.number
    assert second.letter.rollout == first.letter.rollout


async def test_a_rollout_that_has_a_reward_by_now_is_not_made_again(workshop: Workshop, run: str) -> None:
    buried = await workshop.fail(run)
    failed, _ = await workshop.outcome(run)
    task = workshop.task(run)
    rewarded = Rollout(
        run=run, task_index=0, rollout_index=0, agent=task.agent, row=task.row, response=reply("x"), reward=0.5
    )
    assert await workshop.outcomes.put(rewarded, replaces=failed, patience_s=5.0)
    await workshop.stop_serving()
    assert await Replay(workshop.bus).replay(buried) is Replayed.NEEDLESS
    assert await workshop.waiting(run) == 0
    assert await workshop.letters.find(buried.number) is None


async def test_a_letter_that_is_given_back_twice_is_one_task(workshop: Workshop, run: str) -> None:
    buried = await workshop.fail(run)
    await workshop.stop_serving()
    for _ in range(2):
        assert await Replay(workshop.bus).replay(buried) is Replayed.AGAIN
    assert await workshop.waiting(run) == 1


async def test_an_urgent_task_is_urgent_again(workshop: Workshop, run: str) -> None:
    workshop.agent.end = badly
    await workshop.submit(workshop.task(run), urgent=True)
    (buried,) = await workshop.buried(run)
    await workshop.stop_serving()
    await Replay(workshop.bus).replay(buried)
    counts = await workshop.js.count_by_subject(streams.TASKS, subjects.urgent_tasks_of_run(run))
    assert counts == {subjects.urgent_tasks(run, workshop.name): 1}


async def test_a_large_task_is_given_back_whole(workshop: Workshop, run: str) -> None:
    padding = secrets.token_urlsafe(workshop.bus.max_body_bytes)
    workshop.agent.end = badly
    await workshop.submit(workshop.task(run, row={"padding": padding}))
    (buried,) = await workshop.buried(run)
    failed, _ = await workshop.outcome(run)
    workshop.agent.end = well
    await Replay(workshop.bus).replay(buried)
    _, outcome = await workshop.outcome(run, after=failed)
    assert json.loads(outcome.row)["padding"] == padding


async def test_a_rollout_whose_agent_does_not_run_stays(workshop: Workshop, run: str) -> None:
    task = msgspec.structs.replace(workshop.task(run), agent="nobody")
    letter = DeadLetter(subject=f"gym.tasks.{run}.nobody", reason="no", body=encode(task), at=1.0, rollout=f"{run}/0/0")
    stored = await workshop.js.store(subjects.dead_letters_with_run("agent", run), encode(letter))
    failed = Failure(
        run=run,
        task_index=0,
        rollout_index=0,
        agent="nobody",
        row=task.row,
        failure_class="agent_failed",
        stage="agent",
        message="no",
    )
    await workshop.outcomes.put(failed, replaces=None, patience_s=5.0)
    assert "no agent named 'nobody' is running" in await refusal(workshop, Buried(stored.seq, letter))


async def test_a_rollout_of_a_cancelled_run_stays(workshop: Workshop, run: str) -> None:
    buried = await workshop.fail(run)
    await cancel(workshop.bus, run)
    assert await refusal(workshop, buried) == "it was cancelled"


async def test_a_rollout_whose_failure_is_not_stored_any_more_stays(workshop: Workshop, run: str) -> None:
    buried = await workshop.fail(run)
    await workshop.js.api(f"STREAM.PURGE.{streams.ROLLOUTS}", {"filter": subjects.rollouts_of_run(run)})
    assert "holds no outcome of it any more" in await refusal(workshop, buried)


async def test_what_nobody_can_read_stays(workshop: Workshop, run: str) -> None:
    await bury(workshop.bus, "agent", f"gym.tasks.{run}.x", "not a task", b"{", sequence=secrets.randbits(40))
    found = [buried async for buried in workshop.letters.read()]
    assert "nobody could read it" in await refusal(workshop, found[-1])


async def test_a_submission_becomes_rollouts_once_its_agent_is_there(workshop: Workshop, run: str) -> None:
    late = Workshop(workshop.bus, f"late{secrets.token_hex(6)}")
    row = msgspec.Raw(msgspec.msgpack.encode(prompt("say done")))
    submission = Submission(run=run, row=row, agent=late.name, task_index=0)
    await workshop.js.store(subjects.SUBMIT, encode(submission))
    (buried,) = await workshop.buried(run)
    await late.open()
    assert await Replay(workshop.bus).replay(buried) is Replayed.AGAIN
    _, outcome = await workshop.outcome(run)
    assert isinstance(outcome, Rollout)
    await late.close()


async def test_a_later_collection_of_the_run_has_the_replayed_rollout(workshop: Workshop, tmp_path: Path) -> None:
    rows = [{**prompt(text), "agent_ref": {"name": workshop.name}} for text in ("good", "bad")]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = CollectOptions(
        input=tmp_path / "in.jsonl", output=tmp_path / "out.jsonl", materialise=MaterialiseOptions()
    )
    workshop.agent.end = lambda rollout: badly(rollout) if b'"bad"' in rollout.row else None
    progress = await Collection(workshop.bus, options).run()
    assert (progress.done, progress.failed) == (1, 1)
    (buried,) = await workshop.buried(progress.run)
    failed, _ = await workshop.outcome(progress.run, 1)

    workshop.agent.end = well
    await Replay(workshop.bus).replay(buried)
    await workshop.outcome(progress.run, 1, after=failed)
    progress = await Collection(workshop.bus, options).run()
    assert (progress.done, progress.failed, progress.submitted) == (2, 0, 0)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(line["_ng_task_index"] for line in lines) == [0, 1]


async def test_reading_ends_although_new_letters_keep_coming(workshop: Workshop, run: str) -> None:
    async def one_more(number: int) -> None:
        await bury(workshop.bus, "agent", "gym.tasks", "no", b"", sequence=secrets.randbits(40), of=(run, number, 0))

    await asyncio.gather(*(one_more(number) for number in range(300)))  # more than are read at once
    count = 0
    async for _ in workshop.letters.read(run):
        await one_more(300 + count)
        count += 1
        assert count <= 300
    assert count == 300
