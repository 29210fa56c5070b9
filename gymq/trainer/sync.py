"""A training run for programs without an event loop of their own."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from gymq.bus.loop_thread import LoopThread, end_task
from gymq.bus.weights.pushing import Pushed
from gymq.defaults import CONFIRM_S, InFlight, WeightsMode
from gymq.protocol.messages import Steering
from gymq.trainer.groups import Batch, Group, Row, TrainerError
from gymq.trainer.run import TrainingRun

T = TypeVar("T")


class SyncTrainingRun:
    """A `TrainingRun` whose methods wait. Use it with `with`; threads may share it."""

    def __init__(self, url: str, run: str, *, model: str = "policy_model") -> None:
        """Connect; the arguments are those of `TrainingRun.connect`.

        Raises:
            BusError: the server cannot be reached.
            TrainerError: a name is not valid.
        """
        self._thread = LoopThread()
        try:
            self._run = self._thread.run(TrainingRun.connect(url, run, model=model))
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. Queued rollouts are run all the same."""
        self._thread.run(self._run.close())
        self._thread.stop()

    def run_rollouts(self, examples: Sequence[Row], **options: Any) -> Generator[Group, None, None]:
        """Start rollouts; return their groups as they are completed. The arguments are `TrainingRun.run_rollouts`'s.

        Raises:
            TrainerError: the options do not fit, or, while groups are returned, one could not be completed.
            RowError: examples cannot be used.
            BusError: while groups are returned, the connection is lost.
        """
        arrived: queue.SimpleQueue[Group | Exception | None] = queue.SimpleQueue()

        async def follow(batch: Batch) -> None:
            try:
                async for group in batch:
                    arrived.put(group)
                arrived.put(None)
            except Exception as error:
                arrived.put(error)
            except asyncio.CancelledError:
                arrived.put(TrainerError("the run was closed"))
                raise

        async def start() -> asyncio.Task[None]:
            return asyncio.create_task(follow(self._run.run_rollouts(examples, **options)))

        return self._groups(self._thread.run(start()), arrived)

    def _groups(
        self, following: asyncio.Task[None], arrived: queue.SimpleQueue[Group | Exception | None]
    ) -> Generator[Group, None, None]:
        try:
            while (group := arrived.get()) is not None:
                if isinstance(group, Exception):
                    raise group
                yield group
        finally:
            self._thread.run(end_task(following))

    def pause(self) -> None:
        """Pause the run as `TrainingRun.pause` does."""
        self._thread.run(self._run.pause())

    def resume(self) -> None:
        """Resume the run as `TrainingRun.resume` does."""
        self._thread.run(self._run.resume())

    def retune(self, **changes: Any) -> Steering:
        """Change how the tasks of the run are taken, as `TrainingRun.retune` does."""
        return self._thread.run(self._run.retune(**changes))

    def cancel(self) -> int:
        """Cancel all rollouts of the run, as `TrainingRun.cancel` does."""
        return self._thread.run(self._run.cancel())

    def update_weights(
        self,
        policy_version: str,
        *,
        weights: bytes | Path | None = None,
        path: str | Path | None = None,
        mode: WeightsMode = "keep",
        in_flight: InFlight = "continue",
        deadline_s: float = CONFIRM_S,
    ) -> Pushed:
        """Update the weights as `TrainingRun.update_weights` does.

        Raises:
            PushError: no replica has loaded them.
            BusError: NATS was away; it is unknown whether they were pushed.
        """
        return self._thread.run(
            self._run.update_weights(
                policy_version, weights=weights, path=path, mode=mode, in_flight=in_flight, deadline_s=deadline_s
            )
        )
