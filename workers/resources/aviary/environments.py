"""Aviary's environments over a list of problems, or over the library's own data sets.

This imports Aviary, which takes seconds; the worker does it when it needs it.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Protocol

import httpx
from aviary.core import Environment, TaskDatasetClient
from aviary.envs.gsm8k import CalculatorEnv, CalculatorEnvConfig, GSM8kDataset
from aviary.envs.gsm8k.env import SafeMathEvaluator
from aviary.envs.hotpotqa import HotPotQADataset, HotPotQAEnv, HotPotQAEnvConfig
from gymq.workers.resources.aviary.problems import NumberProblem, TextProblem

from gymq import OptionsError

MAX_EXPRESSION_LENGTH = 10_000
MAX_BITS = 12_000  # of an integer; Python does not write more than 4300 digits
MAX_PAGES = 2_000


class TaskSet(Protocol):
    """Makes the environment of a task by its index."""

    def __len__(self) -> int: ...

    def get_new_env_by_idx(self, idx: int) -> Environment[Any]: ...


class PageCache(dict[str, str]):
    """Wikipedia's answers by search key; the oldest goes when there are too many."""

    def __setitem__(self, key: str, page: str) -> None:
        super().__setitem__(key, page)
        if len(self) > MAX_PAGES:
            del self[next(iter(self))]


class Gsm8k:
    """GSM8K's word problems with a calculator."""

    def __init__(self, problems: Sequence[NumberProblem] | None, split: str, config: dict[str, Any]) -> None:
        self._config = CalculatorEnvConfig(**config)
        self._tasks = GSM8kDataset(split, self._config) if problems is None else problems

    def __len__(self) -> int:
        return len(self._tasks)

    def get_new_env_by_idx(self, idx: int) -> BoundedCalculatorEnv:
        if isinstance(self._tasks, GSM8kDataset):
            found = self._tasks.get_new_env_by_idx(idx)
            return BoundedCalculatorEnv(found.problem_id, found.problem, found.answer, self._config)
        problem = self._tasks[idx]
        return BoundedCalculatorEnv(str(idx), problem.question, problem.answer, self._config)


class HotPotQa:
    """HotPotQA's questions with a search in Wikipedia."""

    def __init__(
        self, problems: Sequence[TextProblem] | None, split: str, config: dict[str, Any], pages: dict[str, str]
    ) -> None:
        self._config = HotPotQAEnvConfig(**config)
        self._pages = pages
        self._tasks = HotPotQADataset(split, self._config) if problems is None else problems

    def __len__(self) -> int:
        return len(self._tasks)

    def get_new_env_by_idx(self, idx: int) -> HotPotQAEnv:
        if isinstance(self._tasks, HotPotQADataset):
            env = self._tasks.get_new_env_by_idx(idx)
        else:
            problem, config = self._tasks[idx], self._config
            env = HotPotQAEnv(
                None,
                problem.question,
                problem.answer,
                correct_reward=config.correct_reward,
                incorrect_reward=config.incorrect_reward,
                tool_failure_reward=config.tool_failure_reward,
                evaluation_mode=config.evaluation_mode,
                proxy=config.proxy,
            )
        env.wiki_cache = self._pages  # type: ignore[misc]  # the library shares one
        return env


def remote_tasks(url: str, timeout_s: float, api_key: str | None) -> TaskSet:
    """Return the tasks of a `TaskDatasetServer` of Aviary.

    Raises:
        OptionsError: it does not answer, or does not say how many tasks it has.
    """
    try:
        tasks = TaskDatasetClient(url.rstrip("/"), request_timeout=timeout_s, api_key=api_key)
        len(tasks)
    except (httpx.HTTPError, httpx.InvalidURL, TypeError, ValueError, LookupError) as error:
        raise OptionsError(f"server_url {url}: it gives no number of tasks: {error}") from None
    return tasks


def task_set(
    env: Literal["gsm8k", "hotpotqa"],
    problems: Sequence[Any] | None,
    split: str,
    config: dict[str, Any],
    pages: dict[str, str],
) -> TaskSet:
    """Return the tasks of an environment.

    Args:
        problems: the tasks themselves; None takes those of the library's data set, which downloads it.
        split: which part of that data set.
        config: settings of the environment.
        pages: where searches are remembered.

    Raises:
        pydantic.ValidationError: a setting does not fit.
    """
    if env == "gsm8k":
        return Gsm8k(problems, split, config)
    return HotPotQa(problems, split, config, pages)


def _bounded(compute: Callable[[Any, Any], Any], bits: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    """Return the operation, refused before it makes an integer of too many bits."""

    def checked(left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int) and bits(left, right) > MAX_BITS:
            raise ValueError("the result is too large")
        return compute(left, right)

    return checked


def _bounded_round(number: Any, digits: int = 0) -> Any:
    if abs(digits) > MAX_BITS:
        raise ValueError("too many digits")
    return round(number, digits) if digits else round(number)


class BoundedEvaluator(SafeMathEvaluator):
    """Refuses what would compute for minutes, or for ever: 9**9**9."""

    SAFE_OPERATORS: ClassVar[dict[type, Callable[..., Any]]] = SafeMathEvaluator.SAFE_OPERATORS | {
        ast.Pow: _bounded(operator.pow, lambda base, exponent: base.bit_length() * max(exponent, 0)),
        ast.Mult: _bounded(operator.mul, lambda left, right: left.bit_length() + right.bit_length()),
    }
    SAFE_FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = SafeMathEvaluator.SAFE_FUNCTIONS | {
        "round": _bounded_round
    }


class BoundedCalculatorEnv(CalculatorEnv):
    """The library's environment, with a calculator that always comes to an end."""

    # The docstring of the library's method describes the tool to the model.
    @functools.wraps(CalculatorEnv.calculator)
    def calculator(self, expr: str) -> tuple[float | str, float, bool]:  # type: ignore[override]
        try:
            if len(expr) > MAX_EXPRESSION_LENGTH:
                raise ValueError(f"the expression has more than {MAX_EXPRESSION_LENGTH} characters")
            BoundedEvaluator.evaluate(expr.strip())
        except Exception as error:
            config = self.config
            return f"Error using calculator: {error!r}.", config.tool_failure_reward, config.done_on_failure
        return super().calculator(expr)
