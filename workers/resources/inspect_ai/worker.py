"""inspect_ai: tasks of Inspect, with their solvers, tools, limits and scorers."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pydantic

import gymq
from gymq.authoring import importing
from gymq.protocol.messages import FailureClass
from gymq.workers import located


class SampleRow(gymq.Row):
    sample: pydantic.NonNegativeInt  # its number in the task's data set


class Tasks(gymq.AskingEnvironment[SampleRow]):
    """The score that the scorer of an Inspect task gives, as a number"""

    class Options(gymq.WorkerOptions):
        task: str  # as `inspect eval` is given it: PACKAGE/NAME, or FILE.py@NAME
        task_args: dict[str, Any] = pydantic.Field(default_factory=dict)
        score: str | None = None  # the scorer, or the part of its value, that is the reward
        judge_model_server: gymq.Reference | None = None  # the model role `grader`, and the model `gymq/judge`

    reward_range = (-1000.0, 1000.0)  # most scorers give 0 to 1
    running: ClassVar[str | None] = None  # name of the instance; the library runs one evaluation in a process

    async def start(self) -> None:
        if Tasks.running is not None:
            text = f"{Tasks.running} runs in the same process, and Inspect runs one task in each; set `isolated: true`"
            raise gymq.OptionsError(f"{self.name}: {text}")
        with importing("inspect"):
            from gymq.workers.resources.inspect_ai.evaluation import Evaluation
        judge = None if self.options.judge_model_server is None else self._judge
        file, at, name = self.options.task.partition("@")
        task = f"{located(file)}{at}{name}" if file.endswith(".py") else self.options.task
        try:
            self._evaluation = Evaluation(task, self.options.task_args, judge)
        except Exception as error:  # of whatever package it is
            text = (
                f"task: {self.options.task!r} cannot be loaded: {' '.join(f'{type(error).__name__}: {error}'.split())}"
            )
            raise gymq.OptionsError(f"{self.name}: {text}") from error
        self._evaluation.start()
        Tasks.running = self.name

    async def stop(self) -> None:
        Tasks.running = None
        await self._evaluation.stop()

    async def play(self, row: SampleRow, policy: gymq.Policy) -> gymq.Verdict:
        scores, fields = await self._evaluation.run(row.sample, policy)
        name, value = self._chosen(scores)
        if not math.isfinite(value):
            raise gymq.RolloutError(
                FailureClass.VERIFIER_FAILED, f"score: {name} is {value}, which is not a finite number"
            )
        return gymq.Verdict(value, score=name, **fields)

    def _chosen(self, scores: dict[str, float]) -> tuple[str, float]:
        """Return the score that is the reward, with its name."""
        wanted = self.options.score
        named = [name for name in scores if wanted in (None, name)] or [
            name for name in scores if name.rpartition("/")[2] == wanted
        ]
        if len(named) != 1:
            there = ", ".join(scores) or "none"
            text = f"option score: {wanted!r} does not name one of the task's scores; there are: {there}"
            raise gymq.RolloutError(FailureClass.VERIFIER_FAILED, text, retryable=False)
        return named[0], scores[named[0]]

    async def _judge(self, params: dict[str, Any]) -> dict[str, Any]:
        judge = self.options.judge_model_server
        assert judge is not None  # only then is it offered
        return await self.ask(judge.name, params)
