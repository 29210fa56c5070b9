"""verifiers: tasksets and environments of verifiers 0.4, with their own agents, tools and rewards."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import pydantic

import gymq
from gymq.authoring import first_problem, importing
from gymq.protocol.messages import FailureClass


class TaskRow(gymq.Row):
    task: pydantic.NonNegativeInt  # its number in the environment's data set


class Environments(gymq.AskingEnvironment[TaskRow]):
    """The reward that the environment of verifiers gives"""

    class Options(gymq.WorkerOptions):
        environment: str  # the taskset's package
        arguments: dict[str, Any] = pydantic.Field(default_factory=dict)  # configuration of the taskset
        settings: dict[str, Any] = pydantic.Field(default_factory=dict)  # of its environment: agents, limits, its `id`
        judge_model_server: gymq.Reference | None = None  # answers judges that name no endpoint

    reward_range = (-1000.0, 1000.0)  # most environments give 0 to 1

    async def start(self) -> None:
        with importing("verifiers-tasksets"):
            from gymq.workers.resources.verifiers.tasksets import served
        self._open = AsyncExitStack()
        try:
            judge = self._judge if self.options.judge_model_server is not None else None
            served_here = served(self.options.environment, self.options.arguments, self.options.settings, judge)
            self._environment = await self._open.enter_async_context(served_here)
        except Exception as error:  # of whatever package it is
            await self._open.aclose()
            reason = first_problem(error) if isinstance(error, pydantic.ValidationError) else _in_one_line(error)
            text = f"environment: {self.options.environment!r} cannot be loaded: {reason}"
            raise gymq.OptionsError(f"{self.name}: {text}") from error
        self._loading = asyncio.Lock()
        self._tasks: list[Any] = []
        self._more = self._environment.tasks()

    async def stop(self) -> None:
        await self._open.aclose()

    async def play(self, row: TaskRow, policy: gymq.Policy) -> gymq.Verdict:
        reward, fields = await self._environment.play(await self._task(row.task), policy)
        if not isinstance(reward, int | float) or not math.isfinite(reward):
            text = f"{self.options.environment} gave the reward {reward!r}"
            raise gymq.RolloutError(FailureClass.VERIFIER_FAILED, text)
        return gymq.Verdict(float(reward), **fields)

    async def _task(self, number: int) -> Any:
        """Return a task by its number; those before it are loaded too."""
        try:
            async with self._loading:
                missing = itertools.islice(self._more, max(0, number + 1 - len(self._tasks)))
                self._tasks += await asyncio.to_thread(list, missing)  # it may download
        except Exception as error:  # such as a hub that is down
            self._tasks, self._more = [], self._environment.tasks()  # one that failed has nothing more
            text = f"the tasks of {self.options.environment} cannot be loaded: {_in_one_line(error)}"
            raise gymq.ComponentFailed(text) from error
        if number >= len(self._tasks):
            text = (
                f"task: {self.options.environment} has {len(self._tasks)} tasks, counted from 0; there is no {number}"
            )
            raise gymq.InvalidTask(text)
        return self._tasks[number]

    async def _judge(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the judge."""
        judge = self.options.judge_model_server
        assert judge is not None  # only then is it offered
        return await self.ask(judge.name, dict(params))


def _in_one_line(error: Exception) -> str:
    """Return an error of the library in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
