"""Asking a judge whether a submitted law has the form of the true one."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from typing import Any

from gymq.workers.resources.newton_bench.laws import Module

import gymq
from gymq.judge import Judge, Labels, PromptTemplate
from gymq.responses import output_text

Pairs = list[tuple[float, float]]

_ANSWER = Labels({"yes": r"answer:[\s*]*yes", "no": r"answer:[\s*]*no"}, ignore_case=True)
_FIRST_ANSWER = re.compile(r"answer:\s*(yes|no)", re.IGNORECASE)
_WORDS = Labels({"yes": r"\byes\b", "no": r"\bno\b"}, ignore_case=True)
_WORD = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


class AsMeant:
    """Wants a number wherever the true law has one, and judges code without comments, as `Labels` do."""

    form_without_numbers = -0.3  # the reward of a law of the right form that gives no numbers

    def values(self, given: Sequence[Any]) -> list[float]:
        if any(value is not None for value in given):
            given = [math.nan if value is None else value for value in given]
        return [float(value) for value in given]

    def pairs(self, predicted: Sequence[float], true: Sequence[float]) -> Pairs:
        pairs = [pair for pair in zip(predicted, true, strict=True) if not math.isnan(pair[1])]
        return [] if any(math.isnan(value) for value, _ in pairs) else pairs

    def code(self, law: str) -> str:
        """Return the law's code without comments, docstrings and other constants that stand as statements."""
        tree = ast.parse(law)
        for node in ast.walk(tree):
            for name, value in ast.iter_fields(node):
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    setattr(node, name, [one for one in value if not _is_constant(one)] or [ast.Pass()])
        return ast.unparse(tree)

    def material(self, law: str) -> str:
        return _ANSWER.material(law)

    def verdict(self, response: dict[str, Any]) -> str | None:
        text = output_text(response)
        return _ANSWER.read(text) or _WORDS.read(text)


class Published:
    """Leaves out points where the law gives no number, shows it as it is, and reads the first `Answer:`."""

    form_without_numbers = 1.0

    def values(self, given: Sequence[Any]) -> list[float]:
        return [float(value) for value in given]

    def pairs(self, predicted: Sequence[float], true: Sequence[float]) -> Pairs:
        return [pair for pair in zip(predicted, true, strict=True) if not any(map(math.isnan, pair))]

    def code(self, law: str) -> str:
        return law

    def material(self, law: str) -> str:
        return law

    def verdict(self, response: dict[str, Any]) -> str | None:
        text = output_text(response)
        answer = _FIRST_ANSWER.search(text)
        said = [answer[1]] if answer else _WORD.findall(text)
        return said[-1].lower() if said else None


LawRule = AsMeant | Published


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


TRIES = 3

_PROMPT = PromptTemplate(
    """You compare two laws of physics. Decide whether they are mathematically equivalent in form.

The values of constants need not agree: laws that differ only in the number that a constant has are equivalent. \
Exponents are part of the form and have to agree, and so do the variables that occur and how they are combined. \
Guards against impossible input do not count.

Parameters:
{parameters}

True law:
{formula}

Submitted law:
<law>
{law}
</law>

Explain briefly. Then end with one line, either "Answer: YES" or "Answer: NO".""",
    "parameters",
    "formula",
    "law",
)


async def is_equivalent(judge: Judge, module: Module, formula: str, law: str, rule: LawRule) -> bool:
    """Return whether the judge finds the laws equivalent. A judge that says neither in any of three tries means no.

    Raises:
        JudgeFailed: it could not be asked in any of them.
    """
    law = rule.material(law)
    parameters = "\n".join(f"- {name}: {parameter.meaning}" for name, parameter in module.parameters.items())
    prompt = _PROMPT.fill(parameters=parameters, formula=f"{module.result} = {formula}", law=law)
    failures: list[gymq.JudgeFailed] = []
    for _ in range(TRIES):
        try:
            verdict = (await judge.ask(prompt, rule.verdict)).label
        except gymq.JudgeFailed as error:
            failures.append(error)
            continue
        if verdict is not None:
            return verdict == "yes"
    if len(failures) == TRIES:
        raise failures[-1]
    return False
