"""From the lines of a data set to the rows of a run: agents, overrides, prompts, repeats, indices, seeds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Annotated, Any, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, field_validator

from gymq.data.disk_index import RunningNumbers, TaskCounts
from gymq.data.jsonl import JsonlError, LineSource, parse_object
from gymq.data.prompt import RowPrompt
from gymq.data.row_problems import RowProblems
from gymq.data.rows import (
    AGENT_REF,
    ATTEMPT_INDEX,
    FAILURE_FIELDS,
    MAX_INDEX,
    PARAMS,
    ROLLOUT_INDEX,
    TASK_INDEX,
    Index,
    MaterialisedRow,
    RowError,
    agent_name,
)
from gymq.data.short_rows import NULL, Fields, as_object, complete_params

DEFAULT_REPEATS = "_default"

_OF_EARLIER_RUNS = FAILURE_FIELDS | {ATTEMPT_INDEX}  # whose files may be the input


class MaterialiseOptions(BaseModel):
    """Settings that apply to each row of a data set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent_name: str | None = None
    """Agent of the rows that have no field `agent_ref`."""
    limit: Annotated[int, Field(ge=0, le=MAX_INDEX)] | None = None
    """Limit on the lines to read; 0 and None: all."""
    num_repeats: int | dict[str, int] = 1
    """Rollouts per row: a number, or a number for each agent's name, with `_default` for the others; None: 1."""
    num_repeats_add_seed: bool = False
    """Put the rollout index as `seed` into the JSON text `responses_create_params.metadata.extra_body`."""
    responses_create_params: dict[str, Any] = {}
    """Fields that replace fields of each row's `responses_create_params`."""
    prompt: RowPrompt | None = None
    """Template for the `input` of each row, which must then have none."""
    prompt_field: str | None = None
    """Field of each row that is its `input`; None: the first of `gymq.data.short_rows.PROMPTS`."""

    @field_validator("num_repeats", mode="before")
    @classmethod
    def _none_is_once(cls, repeats: object) -> object:
        return 1 if repeats is None else repeats

    @field_validator("num_repeats")
    @classmethod
    def _in_range(cls, repeats: int | dict[str, int]) -> int | dict[str, int]:
        for name, number in (repeats if isinstance(repeats, dict) else {"": repeats}).items():
            limit = "at least 1" if number < 1 else f"at most {MAX_INDEX}"
            if not 1 <= number <= MAX_INDEX:
                raise ValueError(f"{name}: must be {limit}, not {number}" if name else f"must be {limit}")
        return repeats


class Materialisation:
    """One pass over a data set. Use it as a context manager.

    Attributes:
        warnings: sentences about likely mistakes; complete after the pass.
        num_lines: how many were read so far.
        num_equal: lines that are equal to an earlier one, and so one task with it.
    """

    def __init__(self, options: MaterialiseOptions, remedy: str = "") -> None:
        """Prepare a pass.

        Args:
            remedy: the end of the message about a row without a prompt: how to name another field.
        """
        self._options = options
        self._remedy = remedy
        self._overrides = {
            name: msgspec.Raw(msgspec.json.encode(value)) for name, value in options.responses_create_params.items()
        }
        self._numbers = RunningNumbers()
        self._rollouts = TaskCounts()
        self._agents: set[str] = set()
        self.warnings: list[str] = []
        self.num_lines = 0
        self.num_equal = 0
        self._equal = (0, 0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._numbers.close()
        self._rollouts.close()

    def num_rollouts(self, task_index: int) -> int:
        """Return how many rollouts a task has; final only after the pass, because a line may be repeated."""
        return self._rollouts[task_index]

    def rows(self, source: LineSource, refuse: Callable[[int, str], None] | None = None) -> Iterator[MaterialisedRow]:
        """Yield the rows of the run, in order. If an error is raised, discard the rows before it.

        Args:
            refuse: called with the number of each unusable line and one sentence why; None: they are an error.

        Raises:
            RowError: lines cannot be used.
        """
        problems = RowProblems()
        for number, line in _without_blank_end(islice(source, self._options.limit or None)):
            self.num_lines = number
            if not line:
                continue  # the data set has refused it
            try:
                rows = self._rows_of_line(line, number)
            except (RowError, JsonlError, RecursionError) as error:
                problem = "the row is nested too deeply" if isinstance(error, RecursionError) else str(error)
                if refuse is not None:
                    refuse(number, problem)
                else:
                    problems.add(f"{source.name}:{number}", problem)
                continue
            if not problems.count:
                yield from rows
        if problems.count:
            raise RowError(problems.report(self.num_lines))
        self._warn_of_unknown_agents()

    def _rows_of_line(self, line: bytes, number: int) -> Iterator[MaterialisedRow]:
        fields: Fields = {name: value for name, value in parse_object(line).items() if name not in _OF_EARLIER_RUNS}
        params = self._params(fields)
        agent = self._agent(fields)
        repeats = self._repeats(agent)
        task_index = self._task_index(fields, line, number)
        return self._rollouts_of_row(fields, params, agent, task_index, repeats, number)

    def _rollouts_of_row(
        self, fields: Fields, params: Fields, agent: str, task_index: int, repeats: int, number: int
    ) -> Iterator[MaterialisedRow]:
        first = self._rollouts.add(task_index, repeats)
        for rollout_index in range(first, first + repeats):
            fields[ROLLOUT_INDEX] = rollout_index
            if self._options.num_repeats_add_seed:
                fields[PARAMS] = _with_seed(params, rollout_index)
            yield MaterialisedRow(number, task_index, rollout_index, agent, msgspec.json.encode(fields))

    def _params(self, fields: Fields) -> Fields:
        """Return the create parameters of a row, with prompt and overrides, as the row then has them."""
        params = complete_params(fields, self._options.prompt, self._options.prompt_field, self._remedy)
        if self._overrides:
            params.update(self._overrides)
            fields[PARAMS] = params
        if self._options.num_repeats_add_seed:
            _with_seed(params, 0)  # raises before any row is yielded
        return params

    def _agent(self, fields: Fields) -> str:
        if self._options.agent_name and AGENT_REF not in fields:
            fields[AGENT_REF] = {"name": self._options.agent_name}
            name = self._options.agent_name
        else:
            if AGENT_REF not in fields:
                raise RowError(f"the row names no agent: it needs `{AGENT_REF}`, or the run needs agent_name")
            name = agent_name(fields[AGENT_REF])
        self._agents.add(name)
        return name

    def _repeats(self, agent: str) -> int:
        repeats = self._options.num_repeats
        if isinstance(repeats, int):
            return repeats
        found = repeats.get(agent, repeats.get(DEFAULT_REPEATS))
        if found is None:
            raise RowError(f"num_repeats has neither the row's agent {agent!r} nor `{DEFAULT_REPEATS}`")
        return found

    def _task_index(self, fields: Fields, line: bytes, number: int) -> int:
        if TASK_INDEX in fields:
            try:
                return msgspec.json.decode(fields[TASK_INDEX], type=Index)
            except msgspec.MsgspecError as error:
                raise RowError(f"`{TASK_INDEX}` is not a task index: {error}") from None
        # A data set saved with other line ends is still the same data set.
        text = line[:-2] + b"\n" if line.endswith(b"\r\n") else line
        index, first_line = self._numbers.number(hashlib.blake2b(text, digest_size=16).digest(), number)
        if first_line != number:
            self.num_equal += 1
            self._equal = (first_line, number, index)
        fields[TASK_INDEX] = index
        return index

    def equal_rows(self, place: Callable[[int], str]) -> Iterator[str]:
        """Yield a sentence about lines that are equal, if there are any; complete after the pass.

        Args:
            place: names the place of a line by its number.
        """
        first, second, task_index = self._equal
        if self.num_equal:
            one = f"one task, {self.num_rollouts(task_index):,} rollouts"
            others = f"; so are {self.num_equal - 1:,} more" if self.num_equal > 1 else ""
            yield f"{place(first)} and {place(second)} are equal: {one}{others}"

    def _warn_of_unknown_agents(self) -> None:
        repeats = self._options.num_repeats
        if isinstance(repeats, dict):
            unknown = sorted(repeats.keys() - self._agents - {DEFAULT_REPEATS})
            if unknown:
                self.warnings.append(f"num_repeats names agents that no row has: {', '.join(unknown)}")


def _with_seed(params: Fields, seed: int) -> Fields:
    """Return the parameters with `seed` in the JSON text `metadata.extra_body`."""
    given = params.get("metadata", NULL)
    metadata: Fields = {} if given == NULL else as_object(given, f"{PARAMS}.metadata")
    place = f"{PARAMS}.metadata.extra_body"
    try:
        text = msgspec.json.decode(metadata.get("extra_body", NULL), type=str | None)
        body = {} if text is None else json.loads(text)
    except (msgspec.MsgspecError, ValueError):
        raise RowError(f"`{place}` must be text with a JSON object, so that a seed can be added") from None
    if not isinstance(body, dict):
        raise RowError(f"`{place}` must contain a JSON object, but contains {text}")
    return {**params, "metadata": {**metadata, "extra_body": json.dumps({**body, "seed": seed})}}


def _without_blank_end(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers, without blank ones after the last row: editors leave them there."""
    num_blank = 0
    for number, line in enumerate(lines, 1):
        if number > 1 and line.isspace():
            num_blank += 1
            continue
        for before in range(number - num_blank, number):
            yield before, b"\n"
        num_blank = 0
        yield number, line
