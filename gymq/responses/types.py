"""The types of Responses objects and of their items, for type checkers: at run time all of them are plain dicts."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

Status = Literal["in_progress", "completed", "incomplete"]


class OutputText(TypedDict):
    """A text of a message."""

    type: Literal["output_text"]
    text: str
    annotations: NotRequired[list[dict[str, Any]]]


class Refusal(TypedDict):
    """A part of a message in which the model refuses."""

    type: Literal["refusal"]
    refusal: str


class OutputMessage(TypedDict):
    """A message of the model."""

    type: Literal["message"]
    role: Literal["assistant"]
    content: list[OutputText | Refusal]
    id: NotRequired[str]
    status: NotRequired[Status]


class FunctionCall(TypedDict):
    """A tool call of the model."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: NotRequired[str | None]  # JSON text as the model wrote it; some models leave it out
    id: NotRequired[str | None]
    status: NotRequired[Status | None]


class FunctionCallOutput(TypedDict):
    """The output of a tool, in answer to a call."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | list[dict[str, Any]]


class SummaryText(TypedDict):
    """A part of the summary in a reasoning item."""

    type: Literal["summary_text"]
    text: str


class Reasoning(TypedDict):
    """Reasoning of the model."""

    type: Literal["reasoning"]
    summary: list[SummaryText]
    id: NotRequired[str]
    content: NotRequired[list[dict[str, Any]] | None]
    encrypted_content: NotRequired[str | None]


OutputItem: TypeAlias = OutputMessage | FunctionCall | FunctionCallOutput | Reasoning
"""An item of a response's output. Items of hosted tools have further types."""


class IncompleteDetails(TypedDict):
    """The reason why an engine cut a response short."""

    reason: NotRequired[str | None]


class Usage(TypedDict):
    """Numbers of tokens."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: NotRequired[dict[str, int]]
    output_tokens_details: NotRequired[dict[str, int]]


class Response(TypedDict):
    """A Responses object. Agents may store further fields in it."""

    id: str
    object: Literal["response"]
    created_at: float
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    incomplete_details: NotRequired[IncompleteDetails | None]
    usage: NotRequired[Usage | None]
