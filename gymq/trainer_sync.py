"""A training run for programs without an event loop of their own."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from gymq.model import WeightsMode
from gymq.trainer import TrainingRun
from gymq.trainer_groups import Group, Row
from gymq.weights import CONFIRM_S, Pushed

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gymq trainer", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns or raises."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C comes to the thread that waits
            raise

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncTrainingRun:
    """A `TrainingRun` whose methods wait. Use it with `with`; threads may share it."""

    def __init__(self, url: str, run: str, *, model: str = "policy_model") -> None:
        """Connect; the arguments are those of `TrainingRun.connect`.

        Raises:
            BusError, TrainerError
        """
        self._thread = LoopThread()
        try:
            self._run = self._thread.run(TrainingRun.connect(url, run, model=model))
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. Rollouts in the queue are made all the same."""
        self._thread.run(self._run.close())
        self._thread.stop()

    def run_rollouts(self, examples: Sequence[Row], **options: Any) -> Iterator[Group]:
        """Groups as they are completed; the arguments are those of `TrainingRun.run_rollouts`.

        Raises:
            TrainerError, RowError, BusError
        """
        arrived: queue.SimpleQueue[Group | Exception | None] = queue.SimpleQueue()

        async def follow() -> None:
            try:
                async for group in self._run.run_rollouts(examples, **options):
                    arrived.put(group)
                arrived.put(None)
            except Exception as error:
                arrived.put(error)

        async def start() -> asyncio.Task[None]:
            return asyncio.create_task(follow())

        following = self._thread.run(start())
        try:
            while (group := arrived.get()) is not None:
                if isinstance(group, Exception):
                    raise group
                yield group
        finally:
            self._thread.run(_end(following))

    def update_weights(
        self,
        policy_version: str,
        *,
        weights: bytes | Path | None = None,
        path: str | Path | None = None,
        mode: WeightsMode = "keep",
        deadline_s: float = CONFIRM_S,
    ) -> Pushed:
        """As `TrainingRun.update_weights`.

        Raises:
            PushError, BusError
        """
        return self._thread.run(
            self._run.update_weights(policy_version, weights=weights, path=path, mode=mode, deadline_s=deadline_s)
        )


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
