"""Replies that try to break a verifier, or to hold it up."""

from __future__ import annotations

import json
from typing import Any

from gymq.testing import function_call, reply

DEPTH = 10_000
LENGTH = 100_000

TEXTS = {
    "long": "a" * LENGTH,
    "long words": "word " * (LENGTH // 5),
    "long line of digits": "9" * LENGTH,
    "a number past all floats": "1e999999999",
    "minus signs": "-" * LENGTH,
    "lines": "\n" * LENGTH,
    "blanks": " " * LENGTH + "x",
    "control characters": "".join(map(chr, range(32))) * 500,
    "marks of direction": "‮⁦⁩​﻿" * 5_000,
    "combining marks": "á" * 20_000,
    "beyond the first plane": "😀𝔸𐍈" * 10_000,
    "brackets": "[" * DEPTH,
    "braces": "{" * DEPTH,
    "parentheses": "(" * DEPTH + "1" + ")" * DEPTH,
    "nested lists": "[" * DEPTH + "]" * DEPTH,
    "nested objects": '{"a":' * DEPTH + "1" + "}" * DEPTH,
    "half of a surrogate pair": json.dumps({"a": "\ud800"}),
    "fences": "```" * DEPTH,
    "open fence": "```json\n" + "x\n" * DEPTH,
    "empty boxes": "\\boxed{}" * 5_000,
    "open boxes": "\\boxed{" * 3_000,
    "nested boxes": "\\boxed{" * 3_000 + "A" + "}" * 3_000,
    "nested fractions": "\\boxed{" + "\\frac{1}{" * 300 + "2" + "}" * 301,
    "open fractions": "$" + "\\frac{" * 5_000,
    "dollars": "$" * DEPTH,
    "a tower of powers": "\\boxed{9^{9^{9^{9}}}}",
    "a factorial": "\\boxed{100000!!!}",
    "thoughts": "<think>" * DEPTH,
    "open tags": "<a>" * DEPTH,
    "answers": "Answer: " * DEPTH,
    "an entity bomb": '<!DOCTYPE a [<!ENTITY b "x"><!ENTITY c "&b;&b;&b;">]><a>&c;</a>',
    "an alias bomb": "\n".join(
        ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 12))]
    ),
    "quotes": "\"'" * DEPTH,
    "backslashes": "\\" * LENGTH,
    "labels of a judge": "[[A=B]] [[A!=B]] [[1]] [[10]] [[YES]] [[NO]]",
    "placeholders": "{} {0} {question} {reply} %s %(a)s ${HOME} {{",
}

ARGUMENTS = ["", "null", "[]", "1", '"text"', "{", "NaN", '{"a": 1e400}', '{"a": "\\ud800"}', "[" * DEPTH, "9" * 10_000]

_MESSAGE = {"type": "message", "role": "assistant"}
RESPONSES: dict[str, dict[str, Any]] = {
    **{name: reply(text) for name, text in TEXTS.items()},
    **{f"arguments {text:.20}": reply(function_call("no_such_tool", text)) for text in ARGUMENTS},
    "many calls": reply(*(function_call("no_such_tool", {}, f"call_{number}") for number in range(2_000))),
    "many messages": reply(*(["A"] * 5_000)),
    "nothing": reply(),
    "an empty text": reply(""),
    "no content": reply({**_MESSAGE, "content": []}),
    "content that is a text": reply({**_MESSAGE, "content": "A"}),
    "a refusal": reply({**_MESSAGE, "content": [{"type": "refusal", "refusal": "I will not."}]}),
    "only thoughts": reply({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "A"}]}),
}
