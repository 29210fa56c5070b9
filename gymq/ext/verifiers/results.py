"""Results that verifiers (https://github.com/PrimeIntellect-ai/verifiers) saves, `results.jsonl`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gymq.data.jsonl import JsonlError
from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.ext.rollout_files.files import Format
from gymq.ext.rollout_files.rollout import (
    ForeignRollout,
    index_or,
    number,
    plain_message,
    split_chat,
    usage_of,
)
from gymq.ext.rollout_files.shown import row_of
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import VerifiedRollout
from gymq.responses import Item
from gymq.runs.outcome_fields import as_object, own_fields, params_of, prompt_of

_OF_THE_RESULT = frozenset({"prompt", "completion", "reward", "example_id", "id", "error", "token_usage", "tool_defs"})
_OF_THE_TASK = frozenset({"answer", "info", "task", "question"})


def is_verifiers(value: Mapping[str, Any]) -> bool:
    return "prompt" in value and "completion" in value and "response" not in value


def read_verifiers(value: Mapping[str, Any], where: str, index: int, repeats: dict[int, int]) -> ForeignRollout:
    """Return the rollout of a line.

    Args:
        index: number of the line, where it names no example.
        repeats: how many rollouts of each example came before; counted here.

    Raises:
        JsonlError: a message is not what it should be.
    """
    task = index_or(value.get("example_id", value.get("id")), index)
    usage = as_object(value.get("token_usage"))
    repeats[task] = repeats.get(task, -1) + 1
    prompt, made = _chat(value["prompt"], "user", where), _chat(value["completion"], "assistant", where)
    asked, _ = split_chat(prompt, where)
    if len(asked) < len(prompt) or not made:  # a prompt may have replies of its own
        asked, said = split_chat([*prompt, *made], where)
    else:
        _, said = split_chat(made, where)
    error = value.get("error")
    return ForeignRollout(
        task_index=task,
        rollout_index=repeats[task],
        agent=str(value.get("task") or "verifiers"),
        prompt=asked,
        output=said,
        reward=number(value.get("reward")),
        row=as_object(value.get("info")) | {name: value[name] for name in value if name in _OF_THE_TASK},
        verdict={name: value[name] for name in value if name not in _OF_THE_RESULT | _OF_THE_TASK},
        why_not="" if error is None else str(error),
        usage=usage_of(usage.get("input_tokens"), usage.get("output_tokens")),
    )


def write_verifiers(
    *,
    example: int,
    task: str,
    prompt: Sequence[Item],
    response: Mapping[str, Any],
    reward: float,
    row: Mapping[str, Any],
    verdict: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the result of a rollout, with the numbers of its verdict as metrics.

    Raises:
        ResponsesError: an item has no chat form.
    """
    metrics = {name: found for name, value in verdict.items() if (found := number(value)) is not None}
    usage = response.get("usage") or {}
    answer = next((row[name] for name in ("answer", "expected_answer", "target") if name in row), "")
    return {
        "example_id": example,
        "task": task,
        "prompt": _plain(responses_to_chat({"input": list(prompt)})["messages"]),
        "completion": _plain(responses_to_chat({"input": list(response["output"])})["messages"]),
        "reward": reward,
        "answer": answer if isinstance(answer, str) else msgspec.json.encode(answer).decode(),
        "info": dict(row),
        "metrics": metrics,
        "token_usage": {name: usage[name] for name in ("input_tokens", "output_tokens") if name in usage},
    }


def _chat(messages: object, role: str, where: str) -> list[Any]:
    if isinstance(messages, str):
        return [{"role": role, "content": messages}]
    if not isinstance(messages, list):
        raise JsonlError(f"{where}: prompt and completion must be messages or text")
    return [_with_calls(message) for message in messages]


def _with_calls(message: Any) -> Any:
    """Return a message whose tool calls have the form of Chat Completions: they may be JSON texts, or flat."""
    if not isinstance(message, dict) or not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        if isinstance(call, str):
            try:
                call = msgspec.json.decode(call)
            except UNDECODABLE:
                continue
        if isinstance(call, dict) and "function" not in call:
            call = {"id": call.get("id"), "function": {name: call.get(name) for name in ("name", "arguments")}}
        calls.append(call)
    return {**message, "tool_calls": calls}


def _plain(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without fields that are null, and with their texts as one text."""
    plain = [plain_message(message) for message in messages]
    return [{name: value for name, value in message.items() if value is not None} for message in plain]


def _written(outcome: VerifiedRollout) -> dict[str, Any]:
    row = row_of(outcome)
    return write_verifiers(
        example=outcome.task_index,
        task=outcome.agent,
        prompt=prompt_of(params_of(row, outcome.verdict)),
        response=outcome.response,
        reward=outcome.reward,
        row=own_fields(row),
        verdict=outcome.verdict,
    )


RESULTS = Format(
    name="a result of verifiers",
    is_it=is_verifiers,
    read=lambda value, where, index, repeats: [read_verifiers(value, where, index, repeats)],
    write=_written,
)
