"""One evaluation of Inspect that runs as long as the worker: samples are added to it as rollouts begin.

This imports inspect_ai; the worker does it when it starts. Inspect runs one evaluation in a process, so all rollouts
share one, whose samples come from a `SampleSource`: https://inspect.aisi.org.uk.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gymq.workers.resources.inspect_ai.model import MODEL, Playing, playing
from inspect_ai import SampleSource, enqueue_sample, eval_async, task_with
from inspect_ai._eval.loader import load_tasks
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSample
from inspect_ai.scorer import Score, Scorer, Target, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util._display import init_display_type

import gymq
from gymq.protocol.messages import FailureClass, Stage

MOST_SAMPLES = 10_000  # at a time; the agents limit them
MAX_EXPLANATION = 2000  # characters of an explanation that a verdict keeps
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}

Judge = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Evaluation:
    """A task, evaluated sample by sample as rollouts ask for them."""

    def __init__(self, name: str, arguments: Mapping[str, Any], judge: Judge | None) -> None:
        """Load the task.

        Raises:
            ValueError: there is no such task, or more than one, or it has no scorer.
            Exception: raised by the task.
        """
        found = load_tasks([name], dict(arguments))
        if len(found) != 1:
            raise ValueError(f"{len(found)} tasks have this name; expected PACKAGE/NAME or FILE.py@NAME")
        (self._task,) = found
        if not self._task.scorer:
            raise ValueError("it has no scorer, which gives the reward")
        self._name = name
        self._judge = judge
        self._samples = self._task.dataset
        self._playing: dict[str, Playing] = {}
        self._feed = _Feed(self._completed)
        self._number = itertools.count()
        setup = self._task.setup or []
        task_with(
            self._task,
            dataset=self._feed,
            setup=[_begins(self._playing), *(setup if isinstance(setup, list) else [setup])],
            scorer=[_scores(self._playing), *self._task.scorer],
            epochs=1,
        )

    def start(self) -> None:
        """Begin the evaluation, which waits for samples."""
        init_display_type("none")
        self._logs = tempfile.TemporaryDirectory(prefix="gymq-inspect-")
        self._running = asyncio.create_task(
            eval_async(
                self._task,
                model=MODEL,
                model_roles={} if self._judge is None else {"grader": "gymq/judge"},
                log_dir=self._logs.name,
                log_samples=False,
                log_realtime=False,
                ctl_server=False,
                fail_on_error=False,
                max_samples=MOST_SAMPLES,
                max_connections=MOST_SAMPLES,
            )
        )

    async def stop(self) -> None:
        for one in self._playing.values():
            one.end()
        self._running.cancel()
        await asyncio.wait([self._running])
        self._logs.cleanup()

    async def run(self, number: int, policy: gymq.Policy) -> tuple[dict[str, float], dict[str, Any]]:
        """Evaluate a sample; return its scores as numbers, and the fields of the verdict.

        Raises:
            InvalidTask: there is no such sample.
            RolloutError: it has no score.
        """
        if number >= len(self._samples):
            text = f"sample: {self._name} has {len(self._samples)} samples, counted from 0; there is no {number}"
            raise gymq.InvalidTask(text)
        sample = self._samples[number].model_copy(deep=True)
        sample.id = f"{number if sample.id is None else sample.id}~{next(self._number)}"
        one = self._playing[sample.id] = Playing(policy, self._judge)
        try:
            self._feed.add(sample)
            await asyncio.wait([one.completed, self._running], return_when=asyncio.FIRST_COMPLETED)
        finally:
            one.end()
            self._playing.pop(sample.id)
        if not one.completed.done():
            raise gymq.ComponentFailed(f"Inspect's evaluation of {self._name} ended: {_why(self._running)}")
        return self._read(one, one.completed.result())

    def _read(self, one: Playing, done: EvalSample) -> tuple[dict[str, float], dict[str, Any]]:
        if one.failed is not None:
            raise one.failed
        if done.error is not None:
            failure = FailureClass.VERIFIER_FAILED if one.is_scoring else FailureClass.COMPONENT_FAILED
            stage = Stage.VERIFY if one.is_scoring else Stage.AGENT
            text = f"{self._name} ended with {' '.join(done.error.message.split())[:1000]}"
            raise gymq.RolloutError(failure, text, stage=stage)
        scores = done.scores or {}
        numbers = {name: value for scorer_, score in scores.items() for name, value in _numbers(scorer_, score)}
        fields: dict[str, Any] = {"scores": {name: _shown(score) for name, score in scores.items()}}
        return numbers, fields | ({"limit": done.limit.type} if done.limit is not None else {})

    def _completed(self, sample: EvalSample) -> None:
        one = self._playing.get(str(sample.id))
        if one is not None and not one.completed.done():
            one.completed.set_result(sample)


class _Feed(SampleSource):
    """Samples for the running evaluation."""

    def __init__(self, completed: Callable[[EvalSample], None]) -> None:
        self._completed = completed
        self._waiting: asyncio.Queue[Sample] = asyncio.Queue()
        self._context: contextvars.Context | None = None
        self._is_idle = True

    def add(self, sample: Sample) -> None:
        """Start a sample. The library takes some only in the context of the evaluation, and only while it is busy."""
        if self._is_idle or self._context is None:
            self._waiting.put_nowait(sample)
        else:
            self._context.run(enqueue_sample, sample)

    async def next_samples(self) -> list[Sample]:
        self._context = contextvars.copy_context()
        self._is_idle = True
        samples = [await self._waiting.get()]
        self._is_idle = False
        while not self._waiting.empty():
            samples.append(self._waiting.get_nowait())
        return samples

    async def sample_complete(self, sample: EvalSample) -> None:
        self._completed(sample)


@solver
def _begins(all_playing: Mapping[str, Playing]) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        playing.set(all_playing[str(state.sample_id)])
        return state

    return solve


@scorer(metrics=[])
def _scores(all_playing: Mapping[str, Playing]) -> Scorer:
    """From here on the model is asked by scorers."""

    async def score(state: TaskState, target: Target) -> Score | None:
        one = all_playing[str(state.sample_id)]
        one.is_scoring = True
        playing.set(one)
        return None

    return score


def _numbers(name: str, score: Score) -> list[tuple[str, float]]:
    """Return a score as a number; one with several parts as a number for each.

    Raises:
        RolloutError: it is none.
    """
    if isinstance(score.value, Mapping):
        return [(f"{name}/{part}", _number(f"{name}/{part}", value)) for part, value in score.value.items()]
    return [(name, _number(name, score.value))]


def _number(name: str, value: Any) -> float:
    """Return a value by Inspect's rule: C, I, P and N are 1, 0, 0.5 and 0; texts are read as words or numbers."""
    if isinstance(value, str):
        if value in _LETTERS:
            return _LETTERS[value]
        if value.strip().lower() in _WORDS:
            return _WORDS[value.strip().lower()]
        try:
            return float(value)
        except ValueError:
            pass
    elif isinstance(value, bool | int | float):
        return float(value)
    raise gymq.RolloutError(FailureClass.VERIFIER_FAILED, f"score: {name} is {value!r:.100}, which is not a number")


def _shown(score: Score) -> dict[str, Any]:
    explanation = None if score.explanation is None else score.explanation[:MAX_EXPLANATION]
    return {"value": score.value, "answer": score.answer, "explanation": explanation}


def _why(ended: asyncio.Task[Any]) -> str:
    if ended.cancelled():
        return "it was cancelled"
    error = ended.exception()
    if error is not None:
        return f"{type(error).__name__}: {error}"
    logs = ended.result()
    failed = logs[0].error if logs else None
    return "without an error" if failed is None else str(failed.message)
