"""The task set: prompts, references and inputs, and the types of inputs that JSON does not have."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pydantic
from gymq.workers.resources.evalplus.comparison import Dataset

import gymq
from gymq.authoring import first_problem
from gymq.ext.functions.harness.values import encode


class BaseTask(pydantic.BaseModel):
    """A task of any set."""

    task_id: str


TaskT = TypeVar("TaskT", bound=BaseTask)


def find_file(problems: Path | None, name: str, folder: Path) -> Path:
    """Return the file of a task set.

    Args:
        problems: the file that the options name, relative to the current folder or to the worker's.
        name: of the published file, which is looked for if they name none, also with the ending `.gz`.
        folder: the worker's.

    Raises:
        OptionsError: there is none.
    """
    if problems is not None:
        candidates = [problems, folder / problems]
        missing = f"the file {problems} does not exist"
    else:
        candidates = [folder / "data" / name, folder / "data" / f"{name}.gz"]
        missing = f"there is no {name} in {folder / 'data'}; download it, or name a file in `problems`"
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        raise gymq.OptionsError(f"problems: {missing}")
    return found


def read_tasks(path: Path, kind: type[TaskT]) -> dict[str, TaskT]:
    """Return the tasks of a file by their ids; a name that ends in `.gz` is unpacked.

    Raises:
        OptionsError: the file cannot be read, or a line is not a task.
    """
    tasks: dict[str, TaskT] = {}
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).split(b"\n")
    except (OSError, EOFError, zlib.error) as error:
        raise gymq.OptionsError(f"problems: {path}: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            task = kind.model_validate_json(line)
        except pydantic.ValidationError as error:
            raise gymq.OptionsError(f"problems: {path}:{number}: {first_problem(error)}") from None
        tasks[task.task_id] = task
    if not tasks:
        raise gymq.OptionsError(f"problems: {path} has no tasks")
    return tasks


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


def _tuples_in_each(arguments: Arguments) -> Arguments:
    return [_tuples(one) for one in arguments]


def _by_task(*kinds: tuple[Callable[[Arguments], Arguments], tuple[int, ...]]) -> dict[int, Any]:
    return {number: typed for typed, numbers in kinds for number in numbers}


# The numbers of the tasks are those of MBPP, the types those of the data set's own reader.
_TYPED: dict[int, Callable[[Arguments], Arguments]] = _by_task(
    (
        _tuples,
        (2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616, 630, 726, 740, 744, 809),
    ),
    (_tuples_in_each, (63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780)),
    (lambda given: [_tuples(given[0]), *given[1:]], (75, 413, 444, 753)),
    (lambda given: [given[0], tuple(given[1])], (106, 750)),
    (lambda given: [[set(one) if isinstance(one, list) and one else {} for one in given[0]]], (115,)),
    (lambda given: [float(given[0]), complex(given[1])], (124,)),
    (lambda given: [tuple(given[0]), *given[1:]], (250, 307, 405, 446, 617, 720, 763, 808)),
    (lambda given: [complex(given[0])], (252,)),
    (lambda given: _tuples(_tuples_in_each(given)), (259, 401, 445)),
    (lambda given: [tuple(tuple(one) if isinstance(one, list) else one for one in given[0])], (278,)),
    (_all_tuples, (580, 615, 791)),
    (lambda given: [{key: tuple(value) for key, value in given[0].items()}, *given[1:]], (722,)),
)
