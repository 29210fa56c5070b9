"""Asking a model whether two mathematical answers mean the same."""

from __future__ import annotations

from typing import Any

from gymq.judge import first_label, last_text

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


def prompt(problem: str, answer_a: str, answer_b: str) -> str:
    """The user's message for one comparison."""
    return QUESTION.format(problem=problem, answer_a=answer_a, answer_b=answer_b)


def verdict(response: dict[str, Any]) -> str | None:
    """The label that comes first in the last text of the judge's last output item; None if there is none."""
    return first_label(last_text(response), EQUAL, DIFFERENT)
