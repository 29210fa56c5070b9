"""One rollout of another program, on its way to a line of a result file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gymq.data.jsonl import JsonlError
from gymq.data.rows import (
    AGENT_REF,
    FAILURE_CLASS,
    FAILURE_MESSAGE,
    FAILURE_STAGE,
    FAILURE_TERMINAL,
    PARAMS,
    ROLLOUT_INDEX,
    TASK_INDEX,
)
from gymq.errors import GymqError
from gymq.ext.http.chat_request import chat_messages_to_items
from gymq.ext.rollout_files.names import name_of
from gymq.protocol.messages import FailureClass, Stage
from gymq.responses import Item, ResponsesError, response_without_model


@contextmanager
def read_at(where: str) -> Iterator[None]:
    """Name the place of whatever is wrong with a rollout: other programs' files may hold anything at any depth.

    Raises:
        JsonlError
    """
    try:
        yield
    except GymqError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise JsonlError(f"{where}: not a rollout of the form that it looks like: {error}") from None


@dataclass
class ForeignRollout:
    """What other programs store of a rollout.

    Attributes:
        row: fields of the task, which a verifier may read.
        prompt: items before the first reply.
        output: items from the first reply on.
        reward: None: it has none that is a number.
        why_not: why there is no reward, if the program says so.
        verdict: further results.
    """

    task_index: int
    rollout_index: int
    agent: str
    prompt: list[Item]
    output: list[Item]
    reward: float | None
    row: dict[str, Any] = field(default_factory=dict)
    tools: list[Item] = field(default_factory=list)
    verdict: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    why_not: str = ""
    usage: dict[str, int] | None = None

    def line(self) -> bytes:
        """Return it as a line of a result file; without a reward as one of a file of failures."""
        response = dict(response_without_model(self.model or "unknown", self.output))
        response["model"] = self.model or "unknown"
        if self.usage is not None:
            response["usage"] = self.usage
        params: dict[str, Any] = {"input": self.prompt, **({"tools": self.tools} if self.tools else {})}
        fields: dict[str, Any] = {**self.row, PARAMS: params, "response": response, **self.verdict}
        if self.reward is not None:
            fields["reward"] = self.reward
        else:
            fields.pop("reward", None)
            fields[FAILURE_CLASS] = FailureClass.VERIFIER_FAILED
            fields[FAILURE_STAGE] = Stage.VERIFY
            fields[FAILURE_MESSAGE] = self.why_not or "the file has no reward of this rollout"
            fields[FAILURE_TERMINAL] = False
        fields[TASK_INDEX] = self.task_index
        fields[ROLLOUT_INDEX] = self.rollout_index
        fields[AGENT_REF] = {"name": name_of(self.agent)}
        return msgspec.json.encode(fields) + b"\n"


def number(value: object) -> float | None:
    """Return a finite number; None for anything else."""
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    return None


def index_or(value: object, otherwise: int) -> int:
    """Return an index, a whole number of at least 0; `otherwise` for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise


def usage_of(prompt: object, completion: object) -> dict[str, int] | None:
    """Return the token counts of a rollout; None unless both are numbers."""
    if not isinstance(prompt, int | float) or not isinstance(completion, int | float):
        return None
    made, total = int(completion), int(prompt) + int(completion)
    return {"input_tokens": int(prompt), "output_tokens": made, "total_tokens": total}


def plain_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat message with its text as one text, where it has nothing but text."""
    content = message.get("content")
    if not isinstance(content, list) or any(part.get("type") != "text" for part in content):
        return dict(message)
    return {**message, "content": "".join(part["text"] for part in content)}


def split_chat(messages: Sequence[Any], where: str) -> tuple[list[Item], list[Item]]:
    """Return the items before the first reply of a chat, and those from there on.

    Raises:
        JsonlError: a message has no form as items.
    """
    first = next(
        (index for index, one in enumerate(messages) if isinstance(one, Mapping) and one.get("role") == "assistant"),
        len(messages),
    )
    try:
        return chat_messages_to_items(messages[:first]), chat_messages_to_items(messages[first:])
    except ResponsesError as error:
        raise JsonlError(f"{where}: {error}") from None
