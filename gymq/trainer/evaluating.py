"""Evaluations beside a training: each as urgent rollouts of a run of their own, and never waited for."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable

from gymq.data.rows import TASK_INDEX
from gymq.processes.background import end_task
from gymq.trainer.batch import Batch
from gymq.trainer.options import BatchOptions


class Evaluations:
    """The evaluations of a training."""

    def __init__(self, run_rollouts: Callable[..., Batch], options: BatchOptions, every: int) -> None:
        """Prepare them.

        Args:
            run_rollouts: of the run that they are stored in.
            every: batches from one to the next; one that is due while another is under way is left out.
        """
        self._run_rollouts = run_rollouts
        self._rows = options.evaluation_rows
        self._num_samples = options.evaluation_samples
        self._every = every
        self._running: asyncio.Task[dict[str, float]] | None = None

    def begin(self, step: int) -> None:
        """Begin an evaluation if one is due after so many batches."""
        if self._running is None and step % self._every == 0:
            self._running = asyncio.create_task(self._evaluate(step))

    def take(self) -> dict[str, float]:
        """Return the numbers of an evaluation that is done and was not taken; empty if there is none.

        Raises:
            UsageError, BusError: it could not be done.
        """
        if self._running is None or not self._running.done():
            return {}
        done, self._running = self._running, None
        return done.result()

    async def stop(self) -> None:
        await end_task(self._running)

    async def _evaluate(self, step: int) -> dict[str, float]:
        examples = [{**row, TASK_INDEX: step * len(self._rows) + at} for at, row in enumerate(self._rows)]
        groups = self._run_rollouts(examples, num_samples=self._num_samples, urgent=True, on_untrainable="allow")
        rewards = [reward async for group in groups for reward in group.rewards]
        mean = {"evaluation_reward": statistics.fmean(rewards)} if rewards else {}
        return {**mean, "evaluation_step": float(step)}
