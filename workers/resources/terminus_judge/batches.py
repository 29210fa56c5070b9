"""Batches of keystrokes in the two formats that terminal agents write them in."""

from __future__ import annotations

import difflib
import json
from typing import Any

import pydantic

_MOST_DIGITS = 18  # of an integer that every decoder can hold


class _Closed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")


class _Command1(_Closed):
    keystrokes: str
    is_blocking: bool
    timeout_sec: int | float


class _Command2(_Closed):
    keystrokes: str
    duration: int | float = 0.0


class Terminus1(_Closed):
    """What the first Terminus agent writes."""

    state_analysis: str
    explanation: str
    commands: list[_Command1]
    is_task_complete: bool

    @property
    def is_complete(self) -> bool:
        return self.is_task_complete


class Terminus2(_Closed):
    """A batch in the format of the agent Terminus 2."""

    analysis: str
    plan: str
    commands: list[_Command2]
    task_complete: bool = False

    @property
    def is_complete(self) -> bool:
        return self.task_complete


Batch = Terminus1 | Terminus2

FORMATS: dict[str, type[Batch]] = {"terminus_1": Terminus1, "terminus_2": Terminus2}


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is, or None.

    What no message could carry is replaced: each half of a surrogate pair by three replacement characters, integers of
    19 digits and more by the nearest float.
    """
    try:
        value = json.loads(text, parse_int=_number)
        return _sendable(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


def read_batch(batch: type[Batch], value: dict[str, Any]) -> Batch | None:
    """Return the object as a batch of this format; None if it does not fit."""
    try:
        return batch.model_validate(value)
    except pydantic.ValidationError:
        return None


def similarity(expected: Batch, given: Batch) -> float:
    """Return how alike the keystrokes are, from 0 to 1: the ratio of Python's `difflib.SequenceMatcher`.

    Without commands a batch is only like another one without. In 200 characters and more frequent ones are ignored, as
    it does by default.
    """
    if not expected.commands or not given.commands:
        return float(expected.commands == given.commands)
    return difflib.SequenceMatcher(None, _keystrokes(expected), _keystrokes(given)).ratio()


def _keystrokes(batch: Batch) -> str:
    return "".join(command.keystrokes for command in batch.commands)


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, list):
        return [_sendable(element) for element in value]
    if isinstance(value, dict):
        return {_sendable(name): _sendable(element) for name, element in value.items()}
    return value
