"""Rows as the data sets of trainers have them, with the sampling parameters of a trainer."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gymq.data.rows import PARAMS, RowError
from gymq.data.short_rows import whole_row
from gymq.errors import GymqError, UsageError
from gymq.trainer.examples import called
from gymq.trainer.groups import Row

# Parameters that a row has under another name, or not at all: workers ask for log probs themselves.
_NAMES = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_output_tokens"}
_NOT_SAMPLING = ("logprobs", "reasoning_effort")


def row_of_text(text: Any, name: str) -> Row:
    """Return a row that the data set of a trainer has as JSON text in its column `row`.

    Args:
        name: of the row in the trainer's batch, for messages.

    Raises:
        UsageError: there is none, or it cannot be used.
    """
    needed = "the data set needs the column `row`, with the row as JSON text"
    if not isinstance(text, str):
        raise UsageError(f"{name}: {needed}")
    try:
        row: Row = msgspec.json.decode(whole_row(text.encode()))
    except RowError as error:
        raise UsageError(f"{called(name, _object(text))}: {error}") from None
    except (GymqError, ValueError, RecursionError) as error:
        raise UsageError(f"{called(name, _object(text))}: {needed}: {error}") from None
    return row


def _object(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None


def with_sampling(params: Row, sampling: Row, template: Row | None = None) -> Row:
    """Return parameters with those of a trainer; what the Responses API lacks goes where vLLM's workers look for it.

    Args:
        params: `responses_create_params` of a row.
        sampling: by vLLM's names, as trainers have them; values that are None are not given.
        template: arguments of the chat template.

    Raises:
        UsageError: the row's `metadata.extra_body` is not the text of a JSON object.
    """
    chosen = {name: value for name, value in sampling.items() if value is not None}
    params = params | {_NAMES[name]: value for name, value in chosen.items() if name in _NAMES}
    if "reasoning_effort" in chosen:
        params["reasoning"] = {**(params.get("reasoning") or {}), "effort": chosen["reasoning_effort"]}
    others = {name: value for name, value in chosen.items() if name not in _NAMES and name not in _NOT_SAMPLING}
    if others:
        try:
            metadata = msgspec.convert(params.get("metadata") or {}, dict[str, Any])
            body = msgspec.json.decode(metadata.get("extra_body") or "{}", type=dict[str, Any])
        except (msgspec.MsgspecError, TypeError):
            place = f"row: `{PARAMS}.metadata.extra_body`"
            raise UsageError(f"{place} must be the text of a JSON object, to which {', '.join(others)} go") from None
        params["metadata"] = {**metadata, "extra_body": json.dumps({**body, **others})}
    if template:
        params["metadata"] = {**(params.get("metadata") or {}), "chat_template_kwargs": json.dumps(template)}
    return params
