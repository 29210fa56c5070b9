"""What the references of a task set return, and how long they take. Each runs once, when its task is first verified."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from gymq.workers.resources.evalplus.comparison import Dataset, Returned, needs_known, returned
from gymq.workers.resources.evalplus.tasks import Task

import gymq
from gymq.ext.functions import Runner

TIME_S = 600.0
OUTPUT_BYTES = 256 * 1024**2


@dataclass(frozen=True)
class Tests:
    """One of the two sets of tests of a task.

    Attributes:
        inputs: encoded argument lists.
        expected: for each the line in which the harness gave the result of the reference.
        seconds: that the reference took for each.
    """

    inputs: list[Any]
    expected: list[bytes]
    seconds: list[float]


@dataclass(frozen=True)
class TaskTests:
    """The tests of one task."""

    base: Tests
    plus: Tests


class References:
    """The tests of a task set, with expected results."""

    def __init__(self, runner: Runner, dataset: Dataset) -> None:
        self._runner = runner
        self._dataset = dataset
        self._known: dict[str, TaskTests] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def of(self, task: Task) -> TaskTests:
        """Return the tests of a task.

        Raises:
            InvalidTask: its reference cannot be run, or a result cannot be compared.
            ComponentFailed: the sandbox did not run it.
        """
        async with self._locks[task.task_id]:
            if task.task_id not in self._known:
                self._known[task.task_id] = await self._run(task)
            return self._known[task.task_id]

    async def _run(self, task: Task) -> TaskTests:
        base, plus = task.inputs(self._dataset)
        inputs = [*base, *plus]
        limits_s = [TIME_S] * len(inputs)
        run = await self._runner.call(task.reference, task.entry_point, inputs, limits_s, TIME_S, OUTPUT_BYTES)
        if run.error is not None or not run.ended or len(run.lines) != len(inputs):
            raise gymq.InvalidTask(f"the reference of {task.task_id} does not run: {run.error or 'it did not end'}")
        results = await asyncio.to_thread(lambda: [returned(line) for line in run.lines])
        seconds = [self._seconds(task, number, result) for number, result in enumerate(results, 1)]
        split = len(base)
        return TaskTests(
            Tests(base, run.lines[:split], seconds[:split]), Tests(plus, run.lines[split:], seconds[split:])
        )

    def _seconds(self, task: Task, number: int, result: Returned | None) -> float:
        if result is None:
            raise gymq.InvalidTask(f"the reference of {task.task_id} fails on its input {number}")
        if not result.is_known and needs_known(self._dataset, task.entry_point):
            raise gymq.InvalidTask(f"the reference of {task.task_id} returns what cannot be compared: input {number}")
        return result.seconds
