"""Tasks that run beside the one that starts them."""

import asyncio

import pytest

from gymq.processes.background import RunningTasks, end_task, is_set_within


async def test_a_task_is_kept_until_it_ends() -> None:
    tasks, may_end = RunningTasks(), asyncio.Event()
    task = tasks.start(may_end.wait())
    assert tasks == {task}
    may_end.set()
    await task
    assert not tasks


async def test_a_task_that_is_ended_has_cleaned_up() -> None:
    began, cleaned_up = asyncio.Event(), False

    async def work() -> None:
        nonlocal cleaned_up
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up = True

    task = asyncio.create_task(work())
    await began.wait()
    await end_task(task)
    await end_task(None)
    assert cleaned_up


@pytest.mark.parametrize("is_set", [True, False])
async def test_an_event_is_waited_for_no_longer_than_asked(is_set: bool) -> None:
    event = asyncio.Event()
    if is_set:
        event.set()
    assert await is_set_within(event, 60.0 if is_set else 0.0) is is_set
