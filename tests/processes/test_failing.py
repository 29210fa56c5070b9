"""What is done where a block fails."""

import asyncio
import contextlib
import logging

import pytest

from gymq.processes.failing import FailureLogged, OnFailure, OnFailureAwait


@pytest.mark.parametrize("error", [ValueError("no"), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_what_a_block_began_is_undone_however_it_fails(error: BaseException) -> None:
    undone: list[str] = []

    async def undo() -> None:
        undone.append("awaited")

    with contextlib.suppress(type(error)):
        async with OnFailureAwait(undo):
            with OnFailure(lambda: undone.append("called")):
                raise error
    assert undone == ["called", "awaited"]


async def test_what_a_block_began_stays_if_it_ends_well() -> None:
    undone: list[str] = []

    async def undo() -> None:
        undone.append("awaited")

    async with OnFailureAwait(undo):
        with OnFailure(lambda: undone.append("called")):
            pass
    assert undone == []


def test_the_error_of_a_block_is_raised_after_it_was_undone() -> None:
    with pytest.raises(ValueError, match="no"), OnFailure(lambda: None):
        raise ValueError("no")


def test_an_exception_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("gymq.test")
    with FailureLogged(log, "%s was not closed", "it"):
        raise ValueError("no")
    (record,) = caplog.records
    assert record.getMessage() == "it was not closed"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "no"


def test_what_ends_a_process_or_a_task_is_not_taken_for_a_failure_to_log(caplog: pytest.LogCaptureFixture) -> None:
    for error in (asyncio.CancelledError, KeyboardInterrupt):
        with pytest.raises(error), FailureLogged(logging.getLogger("gymq.test"), "not closed"):
            raise error
    assert not caplog.records
