"""A training run for programs without an event loop of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from gymq.errors import UsageError
from gymq.processes.failing import OnFailure
from gymq.processes.loop_thread import LoopThread
from gymq.trainer.groups import Group, Row
from gymq.trainer.run import TrainingRun
from gymq.trainer.training_batch import TrainingBatch

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[TrainingRun, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncTrainingRun, P], T]:
    """Make a method that waits of one that is awaited."""

    @functools.wraps(method)
    def called(self: SyncTrainingRun, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method(self._run, *args, **kwargs))

    return called


class SyncTrainingRun:
    """A `TrainingRun` whose methods wait. Use it with `with`; threads may share it."""

    def __init__(self, url: str, run: str, *, model: str = "policy_model") -> None:
        """Connect; the arguments are those of `TrainingRun.connect`.

        Raises:
            BusError: the server cannot be reached.
            UsageError: a name is not valid.
        """
        self._thread = LoopThread(UsageError("the run was closed"))
        with OnFailure(self._thread.stop):
            self._run = self._thread.run(TrainingRun.open_in(self._thread, url, run, model))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. Queued rollouts are run all the same."""
        if not self._thread.is_stopped:
            self._thread.run(self._run.disconnect())
            self._thread.stop()

    def run_rollouts(self, examples: Iterable[Row], **options: Any) -> Generator[Group, None, None]:
        """Start rollouts; return their groups as they are completed. The arguments are `TrainingRun.run_rollouts`'s.

        Raises:
            UsageError: the options do not fit, or, while groups are returned, one could not be completed.
            RowError: examples cannot be used.
            BusError: while groups are returned, the connection is lost.
        """
        return self._thread.items(self._run.run_rollouts(examples, **options).completed())

    def train_batches(
        self, rows: Iterable[Row], *, groups: int, num_samples: int, **options: Any
    ) -> Generator[TrainingBatch, None, None]:
        """Return batches to train on, as `TrainingRun.train_batches` does."""
        batches = self._run.train_batches(rows, groups=groups, num_samples=num_samples, **options)
        return self._thread.items(batches)

    pause = _blocking(TrainingRun.pause)
    resume = _blocking(TrainingRun.resume)
    retune = _blocking(TrainingRun.retune)
    cancel = _blocking(TrainingRun.cancel)
    update_weights = _blocking(TrainingRun.update_weights)
    announce = _blocking(TrainingRun.announce)
