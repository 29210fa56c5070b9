"""`gymq dead-letters`, as a person types it."""

import asyncio
import json
import secrets
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.dead_letters import store_dead_letter
from gymq.cli import main
from gymq.protocol import subjects
from gymq.protocol.messages import VerifiedRollout
from gymq.protocol.subjects import RolloutId
from tests.bus.queue.dead_letters.conftest import DeadLetterCluster, well
from tests.bus.queue.dead_letters.conftest import cluster as cluster


@dataclass(frozen=True)
class Called:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.split("\n") if line]


Command = Callable[..., Awaitable[Called]]


@pytest.fixture
def gymq(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], shared_url: str) -> Command:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("GYMQ_NATS", shared_url)

    def ended() -> int:
        with pytest.raises(SystemExit) as exit_:
            main()
        return int(exit_.value.code or 0)

    async def call(*arguments: object) -> Called:
        monkeypatch.setattr(sys, "argv", ["gymq", "dead-letters", *map(str, arguments)])
        capfd.readouterr()
        status = await asyncio.to_thread(ended)
        printed = capfd.readouterr()
        assert "Traceback" not in printed.err
        return Called(status, printed.out, printed.err)

    return call


async def dead_letter(
    cluster: DeadLetterCluster, run: str, number: int = 0, *, reason: str = "no", body: bytes = b"{}"
) -> int:
    """The number of a letter of a run that cannot be read."""
    of = RolloutId(run, number, 0)
    await store_dead_letter(cluster.bus, "agent", "gym.tasks.x.y", reason, body, sequence=secrets.randbits(40), of=of)
    return [found.number async for found in cluster.letters.read(run)][-1]


async def test_list_says_what_failed_where_and_why(cluster: DeadLetterCluster, run: str, gymq: Command) -> None:
    letter = await cluster.fail(run)
    shown = await gymq("list", "--run", run)
    assert shown.status == 0
    for said in (str(letter.number), f"{run}/0/0", "agent_failed", "agent", "the agent stumbled"):
        assert said in shown.out


async def test_list_prints_one_object_a_line(cluster: DeadLetterCluster, run: str, gymq: Command) -> None:
    letter = await cluster.fail(run)
    assert (await gymq("list", "--run", run, "--json")).lines == [
        {
            "number": letter.number,
            "at": letter.letter.at,
            "subject": subjects.TASK.of(run, cluster.name),
            "rollout": f"{run}/0/0",
            "failure_class": "agent_failed",
            "stage": "agent",
            "reason": "the agent stumbled",
        }
    ]


async def test_list_shows_the_newest_in_their_order(cluster: DeadLetterCluster, run: str, gymq: Command) -> None:
    numbers = []
    for number in range(5):
        numbers.append(await dead_letter(cluster, run, number))
        await dead_letter(cluster, f"{run}-other", number)
    listed = await gymq("list", "--run", run, "--limit", 2, "--json")
    assert [line["number"] for line in listed.lines] == numbers[-2:]
    listed = await gymq("list", "--run", run, "--limit", 0, "--json")
    assert [line["number"] for line in listed.lines] == numbers


async def test_list_finds_the_newest_of_a_run_far_behind_those_of_others(
    cluster: DeadLetterCluster, run: str, gymq: Command
) -> None:
    first = await dead_letter(cluster, run)
    for number in range(20):
        await dead_letter(cluster, f"{run}-other", number)
    listed = await gymq("list", "--run", run, "--limit", 1, "--json")
    assert [line["number"] for line in listed.lines] == [first]


async def test_list_says_that_there_are_none(run: str, gymq: Command) -> None:
    shown = await gymq("list", "--run", run)
    assert (shown.status, shown.out) == (0, "")
    assert shown.err == f"no dead letters of run {run}\n"


async def test_show_is_the_whole_letter_with_its_row(cluster: DeadLetterCluster, run: str, gymq: Command) -> None:
    letter = await cluster.fail(run)
    shown = await gymq("show", letter.number)
    assert shown.status == 0
    for said in ("the agent stumbled", "agent_failed at agent", subjects.TASK.of(run, cluster.name), '"say done"'):
        assert said in shown.out
    assert f"gymq rollouts --run {run} --task 0 --rollout 0" in shown.out
    assert f"gymq dead-letters requeue {letter.number}" in shown.out


async def test_show_prints_the_task_as_an_object(cluster: DeadLetterCluster, run: str, gymq: Command) -> None:
    letter = await cluster.fail(run)
    (shown,) = (await gymq("show", letter.number, "--json")).lines
    task = cluster.task(run)
    assert shown["body"]["type"] == "task.v1"
    assert shown["body"]["row"] == json.loads(task.row)
    assert shown["body"]["agent"] == task.agent


async def test_show_fetches_a_large_body(cluster: DeadLetterCluster, run: str, gymq: Command) -> None:
    number = await dead_letter(cluster, run, body=b"x" + secrets.token_bytes(cluster.bus.max_body_bytes))
    (shown,) = (await gymq("show", number, "--json")).lines
    assert shown["body"].startswith("x")
    assert len(shown["body"]) > cluster.bus.max_body_bytes


async def test_what_strangers_wrote_cannot_move_the_cursor(cluster: DeadLetterCluster, run: str, gymq: Command) -> None:
    number = await dead_letter(cluster, run, reason="\x1b[2Jhidden", body=b"\x1b[2J\xff")
    for shown in (await gymq("show", number), await gymq("list", "--run", run)):
        assert shown.status == 0
        assert "\x1b[2J" not in shown.out
        assert "<1b>[2Jhidden" in shown.out


async def test_a_number_that_is_not_there_is_refused(gymq: Command) -> None:
    for command in ("show", "requeue", "drop"):
        refused = await gymq(command, 10**9)
        assert refused.status == 2
        assert f"dead letter {10**9} not found" in refused.err


@pytest.mark.parametrize("command", ["requeue", "drop"])
@pytest.mark.parametrize("arguments", [(), (1, "--all"), (1, "--run", "x"), ("--run", "x", "--all")])
async def test_which_letters_must_be_said_in_one_way(
    gymq: Command, command: str, arguments: tuple[object, ...]
) -> None:
    refused = await gymq(command, *arguments)
    assert refused.status == 2
    assert "choose the letters" in refused.err


async def test_requeue_gives_the_letters_of_a_run_back(cluster: DeadLetterCluster, run: str, gymq: Command) -> None:
    for number in range(2):
        await cluster.fail(run, number)
    failed = [(await cluster.outcome(run, number))[0] for number in range(2)]
    shown = await gymq("requeue", "--run", run)
    assert (shown.status, shown.out) == (0, "2 requeued\n")
    for number in range(2):
        _, outcome = await cluster.outcome(run, number, after=failed[number])
        assert isinstance(outcome, VerifiedRollout)
    assert await cluster.dead_letters(run, 0) == []


async def test_requeue_gives_only_the_letters_of_the_numbers_back(
    cluster: DeadLetterCluster, run: str, gymq: Command
) -> None:
    first = await cluster.fail(run, 0)
    second = await cluster.fail(run, 1)
    await cluster.stop_serving()
    shown = await gymq("requeue", second.number)
    assert (shown.status, shown.out) == (0, "1 requeued\n")
    assert await cluster.waiting(run) == 1
    assert [found.number async for found in cluster.letters.read(run)] == [first.number]


async def test_requeue_says_what_stays_and_why(cluster: DeadLetterCluster, run: str, gymq: Command) -> None:
    letter = await cluster.fail(run)
    await QueueClient(cluster.bus).cancel(run)
    shown = await gymq("requeue", letter.number)
    assert (shown.status, shown.out) == (1, "0 requeued, 1 left\n")
    assert shown.err == f"letter {letter.number} not requeued: it was cancelled\n"


async def test_requeue_changes_nothing_if_one_of_the_numbers_is_wrong(
    cluster: DeadLetterCluster, run: str, gymq: Command
) -> None:
    letter = await cluster.fail(run)
    cluster.agent.end = well
    assert (await gymq("requeue", letter.number, 10**9)).status == 2
    assert await cluster.letters.find(letter.number) == letter


async def test_drop_removes_only_what_was_named(cluster: DeadLetterCluster, run: str, gymq: Command) -> None:
    dropped, kept = await dead_letter(cluster, run, 0), await dead_letter(cluster, run, 1)
    shown = await gymq("drop", dropped)
    assert (shown.status, shown.out) == (0, "1 dropped\n")
    assert [found.number async for found in cluster.letters.read(run)] == [kept]


async def test_drop_removes_the_letters_of_a_run(cluster: DeadLetterCluster, run: str, gymq: Command) -> None:
    for number in range(3):
        await dead_letter(cluster, run, number)
    other = await dead_letter(cluster, f"{run}-other")
    assert (await gymq("drop", "--run", run)).out == "3 dropped\n"
    assert await cluster.dead_letters(run, 0) == []
    assert await cluster.letters.find(other) is not None
