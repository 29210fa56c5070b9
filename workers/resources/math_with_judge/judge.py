"""Asking a model whether two mathematical answers mean the same."""

from __future__ import annotations

from typing import Any

from gymq.judge import Labels, PromptTemplate, last_text

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

QUESTION = PromptTemplate(
    """\
Problem:
{problem}

Answer A:
<answer_a>
{answer_a}
</answer_a>

Answer B:
<answer_b>
{answer_b}
</answer_b>""",
    *("problem", "answer_a", "answer_b"),
)

LABELS = Labels.exactly(EQUAL, DIFFERENT)


def prompt(problem: str, answer_a: str, answer_b: str) -> str:
    """The user's message for one comparison."""
    return QUESTION.fill(problem=problem, answer_a=answer_a, answer_b=answer_b)


def hardened_verdict(response: dict[str, Any]) -> str | None:
    """Return the label that `Labels` reads in the last text of the judge's last output item, if there is one."""
    return LABELS.read(last_text(response))


def first_verdict(response: dict[str, Any]) -> str | None:
    """Return the label that comes first in the last text of the judge's last output item, if there is one."""
    return LABELS.first(last_text(response))
