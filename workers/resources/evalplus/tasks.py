"""The task set: prompts, references and inputs, and the types of inputs that JSON does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pydantic
from gymq.workers.resources.evalplus.comparison import Dataset
from gymq.workers.resources.evalplus.harness import encode
from gymq.workers.resources.evalplus.task_sets import BaseTask


class Task(BaseTask):
    """One function to write."""

    prompt: str
    entry_point: str
    canonical_solution: str
    base_input: list[list[Any]]
    plus_input: list[list[Any]]
    atol: pydantic.NonNegativeFloat

    @property
    def reference(self) -> str:
        """The program that gives the expected results."""
        return self.prompt + self.canonical_solution

    def inputs(self, dataset: Dataset) -> tuple[list[Any], list[Any]]:
        """Return the arguments of the base tests and of the extra ones, encoded for the harness."""
        base, plus = (
            [encode(self._arguments(one, dataset)) for one in each] for each in (self.base_input, self.plus_input)
        )
        return base, plus

    def _arguments(self, written: list[Any], dataset: Dataset) -> list[Any]:
        number = self.task_id.rpartition("/")[2]
        if dataset != "mbpp" or not self.task_id.startswith("Mbpp/") or not number.isdecimal():
            return written
        typed = _TYPED.get(int(number))
        return typed(written) if typed else written


# Types of MBPP's inputs -----------------------------------------------------------------------------------------------

Arguments = list[Any]


def _tuples(lists: list[Any]) -> list[Any]:
    return [tuple(one) for one in lists]


def _all_tuples(value: Any) -> Any:
    return tuple(_all_tuples(element) for element in value) if isinstance(value, list) else value


def _tuple_of_first(arguments: Arguments) -> Arguments:
    return [tuple(arguments[0]), *arguments[1:]]


def _tuples_in_first(arguments: Arguments) -> Arguments:
    return [_tuples(arguments[0]), *arguments[1:]]


def _tuples_in_each(arguments: Arguments) -> Arguments:
    return [_tuples(one) for one in arguments]


def _tuples_of_tuples(arguments: Arguments) -> Arguments:
    return _tuples(_tuples_in_each(arguments))


def _tuple_of_second(arguments: Arguments) -> Arguments:
    return [arguments[0], tuple(arguments[1])]


def _mixed_tuple(arguments: Arguments) -> Arguments:
    return [tuple(tuple(one) if isinstance(one, list) else one for one in arguments[0])]


def _sets_in_first(arguments: Arguments) -> Arguments:
    return [[set(one) if isinstance(one, list) and one else {} for one in arguments[0]]]


def _tuples_by_key(arguments: Arguments) -> Arguments:
    return [{key: tuple(value) for key, value in arguments[0].items()}, *arguments[1:]]


def _float_and_complex(arguments: Arguments) -> Arguments:
    return [float(arguments[0]), complex(arguments[1])]


def _complex(arguments: Arguments) -> Arguments:
    return [complex(arguments[0])]


def _by_task(*kinds: tuple[Callable[[Arguments], Arguments], tuple[int, ...]]) -> dict[int, Any]:
    return {number: typed for typed, numbers in kinds for number in numbers}


# The numbers of the tasks are those of MBPP, the types those of the data set's own reader.
_TYPED: dict[int, Callable[[Arguments], Arguments]] = _by_task(
    (
        _tuples,
        (2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616, 630, 726, 740, 744, 809),
    ),
    (_tuples_in_each, (63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780)),
    (_tuples_in_first, (75, 413, 444, 753)),
    (_tuple_of_second, (106, 750)),
    (_sets_in_first, (115,)),
    (_float_and_complex, (124,)),
    (_tuple_of_first, (250, 307, 405, 446, 617, 720, 763, 808)),
    (_complex, (252,)),
    (_tuples_of_tuples, (259, 401, 445)),
    (_mixed_tuple, (278,)),
    (_all_tuples, (580, 615, 791)),
    (_tuples_by_key, (722,)),
)
