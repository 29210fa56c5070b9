"""Asking a model whether two mathematical answers mean the same."""

from __future__ import annotations

from typing import Any

from gymq import responses

EQUAL = "[[A=B]]"
DIFFERENT = "[[A!=B]]"

INSTRUCTIONS = f"""\
You compare two answers to a mathematical problem, as an impartial judge. You do not solve the problem yourself.

Decide whether answer A and answer B are mathematically equivalent, that is, whether both denote the same object. How
they are written does not matter: LaTeX or plain text, another notation, an equivalent form of an expression, units or
words around the answer. If one answer leaves out something that belongs to the result, or says more than the other,
they are different.

Explain your reasoning briefly, then finish with exactly one of these labels:
{EQUAL} if the answers are equivalent,
{DIFFERENT} if they are not."""

QUESTION = """\
Problem:
{problem}

Answer A:
{answer_a}

Answer B:
{answer_b}"""


def judge_request(params: dict[str, Any], problem: str, answer_a: str, answer_b: str) -> dict[str, Any]:
    """`params` with the messages for one comparison as `input`."""
    question = QUESTION.format(problem=problem, answer_a=answer_a, answer_b=answer_b)
    messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": question}]
    return {**params, "input": messages}


def says_equal(response: dict[str, Any]) -> bool:
    """Whether the last text of the judge's last output item holds the label for equal, and holds it first."""
    text = _last_text(response["output"][-1]) if response["output"] else ""
    equal, different = text.find(EQUAL), text.find(DIFFERENT)
    return equal >= 0 and (different < 0 or equal < different)


def _last_text(item: dict[str, Any]) -> str:
    if not responses.is_message(item):
        return ""
    content = item["content"]
    if isinstance(content, str):
        return content
    return (content[-1].get("text") or "") if content else ""
