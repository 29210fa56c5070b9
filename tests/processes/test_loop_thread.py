"""An event loop in a thread of its own."""

import asyncio
import threading

import pytest

from gymq.processes.loop_thread import LoopThread
from tests.support.waiting import DEADLINE_S


def test_what_runs_has_cleaned_up_when_the_thread_was_stopped() -> None:
    thread, began = LoopThread(), threading.Event()
    tasks: list[asyncio.Task[None]] = []
    done: list[str] = []

    async def clean_up() -> None:
        await asyncio.sleep(0)
        done.append("cleaned up")

    async def work() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await thread.call(clean_up())

    thread.do(lambda: tasks.append(asyncio.ensure_future(work())))
    assert began.wait(DEADLINE_S)
    thread.stop()
    thread.stop()
    assert done == ["cleaned up"]
    with pytest.raises(RuntimeError, match="the event loop was stopped"):
        thread.run(clean_up())
