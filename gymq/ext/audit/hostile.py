"""Worthless replies, and replies that try to break or delay a verifier."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from gymq.data.solutions import Action, ActionCall
from gymq.ext.audit.gold import GoldRow
from gymq.testing.scripts import reply

_LETTERS = "ABCDEFGHIJ"
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
_MARKER = re.compile(r"<\w{1,30}>|\\[a-z]{1,20}\{|`{3}\w{0,20}|#{1,4} |[<=>]{5,9}[^\n]{0,10}|[A-Z][A-Za-z]{1,20}: ?")

# Common notations of answers.
_WRAPPED = ("{}", "\\boxed{{{}}}", "<answer>{}</answer>", "Answer: {}", "ANSWER: {}", '{{"answer": {}}}')

_MESSAGE = {"type": "message", "role": "assistant"}

TOKENS = (
    "a",
    "9",
    " ",
    "\n",
    "-",
    "[",
    "(",
    "{",
    '"',
    "\\",
    "`",
    "$",
    "word ",
    "<a>",
    "Answer: ",
    "\\boxed{",
    "\\frac{",
    "<answer>",
    "<think>",
    '{"a":',
    "```json\n",
    "<<<<<<< SEARCH\n",
    "=======\n",
)
"""Texts that a degenerate policy repeats: words, and opening delimiters."""


def tokens_of(gold: GoldRow) -> list[str]:
    """Return the tokens to repeat for a row: the general ones and the markers in its gold reply."""
    markers = dict.fromkeys(_MARKER.findall(gold.gold.text))
    return list(dict.fromkeys([*TOKENS, *list(markers)[:8]]))


def hostile_replies(name: str, gold: GoldRow) -> Iterator[tuple[str, dict[str, Any] | list[Action]]]:
    """Make the replies of one name for a row.

    Args:
        name: one of `gymq.ext.audit.report.REPLIES`; repeated texts are made by `repeated`.

    Yields:
        A short description, and a Responses object or actions to play in a session.
    """
    yield from _GENERATORS[name](gold)


def _empty(_: GoldRow) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "an empty text", reply("")
    yield "no items", reply()
    yield "blanks", reply(" \n\t ")
    yield "a message without content", reply({**_MESSAGE, "content": []})
    yield "only thoughts", reply({"type": "reasoning", "id": "rs_1", "summary": []})


def _echo(gold: GoldRow) -> Iterator[tuple[str, dict[str, Any]]]:
    if gold.prompt_text.strip():
        yield "the prompt", reply(gold.prompt_text)


def _refusal(_: GoldRow) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "a sentence", reply("I'm sorry, but I can't help with that.")
    yield "a refusal item", reply({**_MESSAGE, "content": [{"type": "refusal", "refusal": "I will not."}]})


def _all_options(gold: GoldRow) -> Iterator[tuple[str, dict[str, Any]]]:
    for wrapped in _WRAPPED[:4]:
        yield f"all letters as {wrapped.format('A')}", reply("\n".join(wrapped.format(one) for one in _LETTERS))
    yield "all letters in one", reply(f"\\boxed{{{', '.join(_LETTERS)}}}")
    for field, options in gold.row.items():
        texts = texts_of_options(options)
        if texts:
            yield f"all of `{field}`", reply("\n".join(texts))


def texts_of_options(value: Any) -> list[str]:
    """Return the texts of a list of options; empty if the value is not such a list."""
    if not isinstance(value, list) or len(value) < 2:
        return []
    texts = [next(iter(one.values())) if isinstance(one, dict) and len(one) == 1 else one for one in value]
    return texts if all(isinstance(text, str) and len(text) <= 200 for text in texts) else []


def repeated(token: str, chars: int) -> dict[str, Any]:
    """Return a reply of about `chars` characters that repeats a token."""
    return reply(token * (chars // len(token)))


def _nan(gold: GoldRow) -> Iterator[tuple[str, dict[str, Any] | list[Action]]]:
    for number in ("NaN", "nan", "Infinity", "1e999"):
        for wrapped in _WRAPPED:
            yield f"{wrapped.format(number)}", reply(wrapped.format(number))
    for number in ("NaN", "nan", ".nan"):
        damaged = [_without_numbers(action, number) for action in gold.gold.actions]
        if damaged != gold.gold.actions:
            yield f"{number} for each number of the gold reply", damaged


def _without_numbers(action: Action, number: str) -> Action:
    """Replace each number in the text of an action by that text, and each in its arguments by NaN."""
    if action.call is None:
        return Action(text=_NUMBER.sub(number, action.text or ""))
    return Action(call=ActionCall(action.call.name, _with_nan(action.call.arguments)))


def _with_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_nan(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_nan(one) for one in value]
    return math.nan if isinstance(value, int | float) and not isinstance(value, bool) else value


def _huge(gold: GoldRow) -> Iterator[tuple[str, dict[str, Any]]]:
    num_chars = 1_000_000
    words = gold.prompt_text.split() or ["word"]
    text = " ".join(words)
    yield "the prompt, a million characters", reply((text + " ") * (num_chars // (len(text) + 1)))
    yield "a million digits", reply("9" * num_chars)
    yield "five thousand messages", reply(*(["x"] * 5_000))


def _deep(_: GoldRow) -> Iterator[tuple[str, dict[str, Any]]]:
    depth = 10_000
    for opening, inner, closing in (("[", "", "]"), ("(", "1", ")"), ('{"a":', "1", "}"), ("<a>", "x", "</a>")):
        yield f"{opening!r} {depth} deep", reply(opening * depth + inner + closing * depth)
    yield "boxes 3000 deep", reply("\\boxed{" * 3_000 + "x" + "}" * 3_000)
    yield "fractions 300 deep", reply("\\boxed{" + "\\frac{1}{" * 300 + "2" + "}" * 301)
    yield "a tower of powers", reply("\\boxed{9^{9^{9^{9}}}}")
    aliases = [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 12)]
    yield "an alias bomb", reply("\n".join(["a0: &a0 [x, x]", *aliases]))
    entities = '<!DOCTYPE a [<!ENTITY b "x"><!ENTITY c "&b;&b;&b;">]><a>&c;</a>'
    yield "an entity bomb", reply(entities)


def _unicode(_: GoldRow) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "control characters", reply("".join(map(chr, range(32))) * 50)
    yield "marks of direction", reply("\u202e\u2066\u2069\u200b\ufeff" * 500)
    yield "combining marks", reply("a" + "\u0301" * 5_000)
    yield "beyond the first plane", reply("\U0001f600\U0001d538\U00010348" * 1_000)
    yield "half of a surrogate pair, as JSON", reply(json.dumps({"a": "\ud800"}))
    yield "line ends of all kinds", reply("\r\x0b\x0c\x1c\x85\u2028\u2029" * 500)


def _tool_calls(gold: GoldRow) -> Iterator[tuple[str, list[Action]]]:
    if gold.tool_names:
        yield "each tool without arguments", [Action(call=ActionCall(name)) for name in gold.tool_names]
    yield "a tool that does not exist", [Action(call=ActionCall("no_such_tool"))]


_GENERATORS: dict[str, Any] = {
    "empty": _empty,
    "echo": _echo,
    "refusal": _refusal,
    "all options": _all_options,
    "NaN": _nan,
    "huge": _huge,
    "deep": _deep,
    "unicode": _unicode,
    "tool calls only": _tool_calls,
}
