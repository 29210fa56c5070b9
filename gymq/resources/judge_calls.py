"""The calls of judges in a verification, which become fields of its verdict without a line of the verifier."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from gymq import responses
from gymq.protocol.messages import JUDGE_CALLS, JUDGE_INPUT_TOKENS, JUDGE_OUTPUT_TOKENS
from gymq.protocol.tokens import TOKEN_FIELDS

MAX_TEXT_CHARS = 16_000
"""Characters of a text of a call; a longer one loses its middle."""

MAX_VERDICT_CHARS = 400_000
"""Characters of the texts of all calls of a verdict; further calls are kept without texts."""


class JudgeCalls:
    """The calls of judges in one verification, in the order of their replies."""

    def __init__(self) -> None:
        self._calls: list[tuple[dict[str, Any], dict[str, Any]]] = []  # each with the response that it keeps
        self._room = MAX_VERDICT_CHARS

    def add(self, model: str, params: Mapping[str, Any], response: dict[str, Any], seconds: float) -> None:
        """Keep a call.

        Args:
            model: the judge's instance in the configuration.
            params: parameters of the request.
            response: the Responses object that it got.
            seconds: that it took.
        """
        prompt, said = list(_shown(_input_of(params))), list(_shown(response.get("output") or []))
        length = len(json.dumps([prompt, said], ensure_ascii=False))
        is_kept = length <= self._room
        if is_kept:
            self._room -= length
        usage = response.get("usage") or {}
        call = {
            "model": model,
            "label": None,
            "input_tokens": usage.get("input_tokens") or 0,
            "output_tokens": usage.get("output_tokens") or 0,
            "seconds": round(seconds, 3),
            **({} if is_kept else {"texts_left_out": True}),
            "request": {"input": prompt if is_kept else []},
            "response": {"output": said if is_kept else []},
        }
        self._calls.append((response, call))

    def label(self, response: dict[str, Any], label: str | None) -> None:
        """Add the label that was read in a response; a longer text is none."""
        if label is not None and len(label) > 80:
            return
        for kept, call in self._calls:
            if kept is response:
                call["label"] = label

    def extend(self, others: JudgeCalls) -> None:
        """Add the calls that another has."""
        self._calls += others._calls

    def fields(self) -> dict[str, Any]:
        """Return the fields of the verdict; none without a call."""
        calls = [call for _, call in self._calls]
        if not calls:
            return {}
        totals = (sum(call[name] for call in calls) for name in ("input_tokens", "output_tokens"))
        return {JUDGE_CALLS: calls, **dict(zip((JUDGE_INPUT_TOKENS, JUDGE_OUTPUT_TOKENS), totals, strict=True))}


recorded_calls: ContextVar[JudgeCalls | None] = ContextVar("recorded_calls", default=None)
"""The calls of the verification in progress; None outside of one."""


@contextmanager
def recording() -> Iterator[JudgeCalls]:
    """Record the calls that the block makes, in tasks that it starts too."""
    calls = JudgeCalls()
    token = recorded_calls.set(calls)
    try:
        yield calls
    finally:
        recorded_calls.reset(token)


def _input_of(params: Mapping[str, Any]) -> list[Any]:
    instructions, given = params.get("instructions"), params.get("input") or []
    items = [responses.user_message(given)] if isinstance(given, str) else given
    return [{"role": "system", "content": instructions}, *items] if instructions else items


def _shown(items: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield items with their texts only, shortened."""
    for item in items:
        if responses.is_message(item):
            content = item.get("content")
            parts = [{"text": content}] if isinstance(content, str) else content or []
            texts = (part.get("text") or part.get("refusal") or f"[{part.get('type')}]" for part in parts)
            yield {"role": item.get("role"), "content": _shortened("\n".join(texts))}
        elif item.get("type") == "reasoning":
            parts = [*(item.get("summary") or []), *(item.get("content") or [])]
            text = "\n".join(str(part.get("text")) for part in parts)
            yield {"type": "reasoning", "summary": [{"type": "summary_text", "text": _shortened(text)}]}
        else:
            fields = {name: value for name, value in item.items() if name not in TOKEN_FIELDS}
            text = json.dumps(fields, ensure_ascii=False)
            yield {"role": item.get("role") or "assistant", "content": _shortened(text)}


def _shortened(text: str) -> str:
    left_out = len(text) - MAX_TEXT_CHARS
    if left_out <= 0:
        return text
    half = MAX_TEXT_CHARS // 2
    return f"{text[:half]}\n[… {left_out:,} characters are left out here …]\n{text[-half:]}"
