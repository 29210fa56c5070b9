"""A training run for programs without an event loop of their own."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, Self, TypeVar

from gymq.bus.loop_thread import LoopThread
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
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. Queued rollouts are run all the same."""
        if not self._is_closed:
            self._is_closed = True
            self._thread.run(self._run.close())
            self._thread.stop()

    def run_rollouts(self, examples: Iterable[Row], **options: Any) -> Generator[Group, None, None]:
        """Start rollouts; return their groups as they are completed. The arguments are `TrainingRun.run_rollouts`'s.

        Raises:
            TrainerError: the options do not fit, or, while groups are returned, one could not be completed.
            RowError: examples cannot be used.
            BusError: while groups are returned, the connection is lost.
        """

        async def start() -> Batch:
            return self._run.run_rollouts(examples, **options)

        return self._groups(self._wait(start()))

    def _groups(self, batch: Batch) -> Generator[Group, None, None]:
        groups = aiter(batch)

        async def following() -> Group | None:
            return await anext(groups, None)

        async def leave() -> None:
            await groups.aclose()

        try:
            while (group := self._wait(following())) is not None:
                yield group
        except GeneratorExit:
            if not self._is_closed:
                self._wait(leave())
            raise

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns or raises.

        Raises:
            TrainerError: the run is closed.
        """
        try:
            if not self._is_closed:
                return self._thread.run(work)
            work.close()
        except CancelledError:
            pass
        raise TrainerError("the run was closed")

    def pause(self) -> None:
        """Pause the run as `TrainingRun.pause` does."""
        self._wait(self._run.pause())

    def resume(self) -> None:
        """Resume the run as `TrainingRun.resume` does."""
        self._wait(self._run.resume())

    def retune(self, **changes: Any) -> Steering:
        """Change how the tasks of the run are taken, as `TrainingRun.retune` does."""
        return self._wait(self._run.retune(**changes))

    def cancel(self) -> int:
        """Cancel all rollouts of the run, as `TrainingRun.cancel` does."""
        return self._wait(self._run.cancel())

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
        return self._wait(
            self._run.update_weights(
                policy_version, weights=weights, path=path, mode=mode, in_flight=in_flight, deadline_s=deadline_s
            )
        )
