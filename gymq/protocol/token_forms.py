"""The forms that the token ids of a response have in a file.

In the form `full` each item has its whole prompt, as NeMo Gym writes it, so a file grows with the square of the turns.
In the form `chain` the prompt of a later call is the number of tokens that it shares with the call before it,
`prompt_prefix_length`, and the tokens after them, `prompt_suffix_token_ids`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any

from gymq.defaults import TokenForm
from gymq.protocol.tokens import PROMPT_FIELD, SAMPLING_FIELD, TOKEN_FIELDS, VERSIONS_FIELD, ContinuedPrompt, link

PREFIX_LENGTH_FIELD = "prompt_prefix_length"
SUFFIX_FIELD = "prompt_suffix_token_ids"

Item = dict[str, Any]


def in_form(response: dict[str, Any], form: TokenForm) -> dict[str, Any]:
    """Return a response with its token ids in the form for a file."""
    return response if form == "full" else _converted(response, _chained if form == "chain" else _without)


def with_whole_prompts(response: dict[str, Any]) -> dict[str, Any]:
    """Return a response of a file, in any form, with whole prompts.

    Raises:
        ValueError: a prompt continues a call that is missing, its fields are not numbers, or the prompts are too long.
    """
    converted = _converted(response, _continued)
    if converted is not response:
        try:
            link(converted["output"])
        except ValueError as error:
            raise ValueError(f"output{error}") from None
        # More would be no line of a file in the form `full`, and a short line in the form `chain` can name any number.
        most_tokens = 1 << 28
        num_tokens = sum(map(_continued_tokens, converted["output"]))
        if num_tokens > most_tokens:
            raise ValueError(
                f"output: its prompts have {num_tokens:,} tokens together; {most_tokens:,} at most are read"
            )
    return converted


def _continued_tokens(item: Any) -> int:
    prompts = [one.get(PROMPT_FIELD) for one in (item if isinstance(item, list) else [item]) if isinstance(one, dict)]
    return sum(len(prompt) for prompt in prompts if isinstance(prompt, ContinuedPrompt))


def _converted(response: dict[str, Any], convert: Callable[[Item], Item]) -> dict[str, Any]:
    """Return a response with converted items; the same object if nothing changes."""
    output = response.get("output")
    if not isinstance(output, list):
        return response
    items = [_each(item, convert) for item in output]
    unchanged = all(kept is item for kept, item in zip(items, output, strict=True))
    return response if unchanged else {**response, "output": items}


def _each(item: Any, convert: Callable[[Item], Item]) -> Any:
    if isinstance(item, list):  # a state of an environment
        return [convert(one) if isinstance(one, dict) else one for one in item]
    return convert(item) if isinstance(item, dict) else item


def _chained(item: Item) -> Item:
    prompt = item.get(PROMPT_FIELD)
    if not isinstance(prompt, ContinuedPrompt):
        return item
    fields = {PREFIX_LENGTH_FIELD: prompt.prefix_length, SUFFIX_FIELD: prompt.suffix}
    return {name: value for name, value in item.items() if name != PROMPT_FIELD} | fields


def _without(item: Item) -> Item:
    if not any(name in item for name in TOKEN_FIELDS):
        return item
    return {name: value for name, value in item.items() if name not in (*TOKEN_FIELDS, VERSIONS_FIELD, SAMPLING_FIELD)}


def _continued(item: Mapping[str, Any]) -> Any:
    if SUFFIX_FIELD not in item:
        return item
    length = item.get(PREFIX_LENGTH_FIELD)
    if not isinstance(length, int) or isinstance(length, bool):
        raise ValueError(f"{PREFIX_LENGTH_FIELD} is {length!r:.80}, not the number of tokens before {SUFFIX_FIELD}")
    try:
        suffix = array("i", item[SUFFIX_FIELD])
    except (TypeError, OverflowError):
        raise ValueError(f"{SUFFIX_FIELD} is not a list of token ids") from None
    kept = {name: value for name, value in item.items() if name not in (PREFIX_LENGTH_FIELD, SUFFIX_FIELD)}
    return kept | {PROMPT_FIELD: ContinuedPrompt(length, suffix)}
