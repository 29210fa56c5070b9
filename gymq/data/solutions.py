"""The solution that a row brings along, in `metadata.simulated_solution`, and whether a response is that solution."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gymq.data.short_rows import SCRIPTS

SOLUTION = SCRIPTS[0]


class ActionCall(msgspec.Struct, forbid_unknown_fields=True):
    """A call of a tool. If the worker has tools, the call is executed, and its output becomes part of the reply."""

    name: str
    arguments: Any = {}


class Action(msgspec.Struct, forbid_unknown_fields=True):
    """One action of the policy: it writes a message or calls a tool."""

    text: str | None = None
    call: ActionCall | None = None

    def __post_init__(self) -> None:
        if (self.call is None) == (self.text is None):
            raise ValueError("an action needs either `call` or `text`")


def read_solution(params: Mapping[str, Any]) -> list[Action] | None:
    """Return the actions of a row's own solution; None if it brings none.

    Args:
        params: the row's `responses_create_params`.

    Raises:
        msgspec.MsgspecError, RecursionError: it cannot be read.
    """
    script = (params.get("metadata") or {}).get(SOLUTION)
    if not isinstance(script, str):
        return None
    return [action for turn in msgspec.json.decode(script, type=list[list[Action]]) for action in turn]


def is_played(solution: Iterable[Action], output: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the output of a response begins with all actions of a solution."""
    taken = _taken(output)
    return all(next(taken, None) == action for action in solution)


def _taken(output: Iterable[Mapping[str, Any]]) -> Iterator[Action]:
    for item in output:
        if item.get("type") == "message" and item.get("role") == "assistant":
            yield Action(text="".join(str(part.get("text", "")) for part in item.get("content") or ()))
        elif item.get("type") == "function_call":
            yield Action(call=ActionCall(str(item.get("name")), _decoded(item.get("arguments"))))


def _decoded(arguments: Any) -> Any:
    try:
        return json.loads(arguments)
    except (TypeError, ValueError, RecursionError):
        return arguments  # a solution may give broken JSON as a text
