"""Processes that are started again whenever they end."""

import asyncio
import math

import pytest

from gymq.errors import GymqError
from gymq.processes.keeping import keep_running, shown_status


class Enough(Exception):
    """Ends the test."""


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, of which none is waited for; after eight the test ends."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            raise Enough

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return pauses


async def ended() -> str:
    return "exit status 3"


@pytest.mark.parametrize(
    ("stays_up_s", "pauses", "num_lines"),
    [(math.inf, [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0], 5), (-1.0, [0.25] * 8, 8)],
)
async def test_the_pause_grows_until_a_process_stays_up(
    slept: list[float], caplog: pytest.LogCaptureFixture, stays_up_s: float, pauses: list[float], num_lines: int
) -> None:
    async def start() -> None:
        pass

    with pytest.raises(Enough):
        await keep_running("p", ended, start, stays_up_s=stays_up_s)
    assert slept == pauses
    assert len(caplog.records) == num_lines


async def test_a_start_that_fails_is_tried_again(slept: list[float], caplog: pytest.LogCaptureFixture) -> None:
    problems = iter([OSError("no descriptors"), GymqError("p: not ready"), Enough()])

    async def start() -> None:
        raise next(problems)

    with pytest.raises(Enough):
        await keep_running("p", ended, start)
    assert caplog.messages[1:] == ["p: no descriptors", "p: not ready"]
    assert slept == [0.25, 0.5, 1.0]


@pytest.mark.parametrize(("status", "text"), [(3, "exit status 3"), (-11, "signal SIGSEGV"), (-250, "signal 250")])
def test_a_status_is_shown_as_people_know_it(status: int, text: str) -> None:
    assert shown_status(status) == text
