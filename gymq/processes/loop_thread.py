"""An event loop in a thread of its own.

A program that computes for long does not hold it up. Programs without an event loop, such as a notebook, wait for it
with `run`; those with one await `call`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self, closed: Exception | None = None) -> None:
        """Start the thread.

        Args:
            closed: raised by whoever waits when the loop is stopped, or calls after it was; None: a `RuntimeError`.
        """
        self.closed = closed or RuntimeError("the event loop was stopped")
        self.is_stopped = False
        self._submitting = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gymq", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns or raises; not for the thread itself."""
        future = self._submit(work)
        try:
            return future.result()
        except CancelledError:
            raise self.closed from None
        finally:
            future.cancel()  # Ctrl-C comes to the thread that waits

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns or raises, which runs in the thread, whichever loop the caller is on."""
        if threading.current_thread() is self._thread:
            return await work
        try:
            return await asyncio.wrap_future(self._submit(work))
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise self.closed from None

    def do(self, function: Callable[[], T]) -> T:
        """Return what a function returns or raises that does not wait, called in the thread."""
        if threading.current_thread() is self._thread:
            return function()

        async def called() -> T:
            return function()

        return self.run(called())

    async def iterate(self, source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Yield what a generator yields that runs in the thread."""
        reader = _Reader(source)
        try:
            while (item := await self.call(reader.next())) is not None:
                yield item
        finally:
            if not self.is_stopped:
                await self.call(reader.close())

    def items(self, source: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Yield what a generator yields that runs in the thread, to a program without an event loop."""
        reader = _Reader(source)
        try:
            while (item := self.run(reader.next())) is not None:
                yield item
        finally:
            if not self.is_stopped:
                self.run(reader.close())

    def stop(self) -> None:
        """Cancel all that runs in the thread, and end it; not for the thread itself. A second time does nothing."""
        with self._submitting:
            if self.is_stopped:
                return
            self.is_stopped = True
            ending = asyncio.run_coroutine_threadsafe(self._end_all(), self._loop)
        ending.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end_all(self) -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._submitting:
            if not self.is_stopped:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise self.closed


class _Reader(Generic[T]):
    """Reads a generator whose reader may give up while an item is waited for."""

    def __init__(self, source: AsyncGenerator[T, None]) -> None:
        self._source = source
        self._lock = asyncio.Lock()

    async def next(self) -> T | None:
        """Return the next item; None at the end."""
        async with self._lock:
            return await anext(self._source, None)

    async def close(self) -> None:
        async with self._lock:
            await self._source.aclose()
