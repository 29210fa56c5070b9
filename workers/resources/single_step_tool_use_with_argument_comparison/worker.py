"""single_step_tool_use_with_argument_comparison: one step of a conversation.

The model has to make the expected tool calls, with arguments close enough, or to send a message. No tool is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from gymq.workers.resources.single_step_tool_use_with_argument_comparison.arguments import parse_json
from gymq.workers.resources.single_step_tool_use_with_argument_comparison.calls import (
    AS_MEANT,
    PUBLISHED,
    Call,
    ComparatorOptions,
    Outcome,
    compare_calls,
)

import gymq
from gymq.responses import is_message


class ExpectedMessage(pydantic.BaseModel):
    type: Literal["message"]
    content: str


class ExpectedCall(pydantic.BaseModel):
    type: Literal["function_call"]
    name: str
    arguments: str  # JSON

    @pydantic.field_validator("arguments")
    @classmethod
    def _check_json(cls, text: str) -> str:
        parse_json(text)
        return text


class ExpectedBatch(pydantic.BaseModel):
    type: Literal["function_call_batch"]
    calls: list[ExpectedCall] = pydantic.Field(min_length=1)


class StepRow(gymq.Row):
    expected_action: Annotated[ExpectedMessage | ExpectedCall | ExpectedBatch, pydantic.Field(discriminator="type")]


class SingleStep(gymq.Resources[StepRow]):
    """Reward 1 for the expected calls, or for any message where one is expected. Two reward modes give shares."""

    reward_range = (0.0, 1.0)

    class Options(gymq.WorkerOptions):
        tool_call_comparator_config: ComparatorOptions = ComparatorOptions()
        hardened: bool = True  # False: surplus calls are free, common words count as any, an empty message is one

    async def start(self) -> None:
        self._rule = AS_MEANT if self.options.hardened else PUBLISHED

    async def verify(self, request: gymq.VerifyRequest[StepRow]) -> gymq.Verdict:
        outcome = self._compare(request.row.expected_action, request)
        return gymq.Verdict(outcome.reward, category=outcome.category)

    def _compare(
        self, expected: ExpectedMessage | ExpectedCall | ExpectedBatch, request: gymq.VerifyRequest[StepRow]
    ) -> Outcome:
        made = [Call.of(call["name"], call.get("arguments") or "") for call in request.function_calls]
        if not made and not has_text(request.response, blank=self._rule.blank_is_a_message):
            return Outcome(0.0, "no_action_found")
        if isinstance(expected, ExpectedMessage):
            return Outcome(0.0, "no_expected_chat_message") if made else Outcome(1.0, "expected_chat_message_found")
        if not made:
            return Outcome(0.0, "no_expected_tool_call")
        calls = expected.calls if isinstance(expected, ExpectedBatch) else [expected]
        wanted = [Call.of(call.name, call.arguments) for call in calls]
        return compare_calls(wanted, made, self.options.tool_call_comparator_config, self._rule)


def has_text(response: Mapping[str, Any], *, blank: bool) -> bool:
    """Return whether an assistant message has a text. A refusal is none.

    Args:
        blank: whether an empty text, or one of white space, is a text.
    """
    messages = [item for item in response["output"] if is_message(item) and item.get("role") == "assistant"]
    texts = [text for message in messages for text in _texts(message.get("content"))]
    return any(blank or text.strip() for text in texts)


def _texts(content: str | list[dict[str, Any]] | None) -> list[str]:
    if isinstance(content, list):
        return [part["text"] for part in content if isinstance(part.get("text"), str)]
    return [] if content is None else [content]
