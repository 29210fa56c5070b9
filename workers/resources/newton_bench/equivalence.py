"""Asking a judge whether a submitted law has the form of the true one."""

from __future__ import annotations

import ast
import re
from typing import Any

from gymq.workers.resources.newton_bench.laws import Module

import gymq
from gymq.judge import Judge, Labels, PromptTemplate
from gymq.responses import output_text

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
_ANSWER = Labels({"yes": r"answer:[\s*]*yes", "no": r"answer:[\s*]*no"}, ignore_case=True)
_FIRST_ANSWER = re.compile(r"answer:\s*(yes|no)", re.IGNORECASE)
_WORDS = Labels({"yes": r"\byes\b", "no": r"\bno\b"}, ignore_case=True)
_WORD = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


async def is_equivalent(judge: Judge, module: Module, formula: str, law: str, *, hardened: bool) -> bool:
    """Return whether the judge finds the laws equivalent. A judge that says neither in any of three tries means no.

    Args:
        hardened: show the law and read the verdict as `Labels` do.

    Raises:
        JudgeFailed: it could not be asked in any of them.
    """
    if hardened:
        law = _ANSWER.material(law, _PROMPT)
    read = read_hardened_verdict if hardened else read_verdict
    parameters = "\n".join(f"- {name}: {parameter.meaning}" for name, parameter in module.parameters.items())
    prompt = _PROMPT.fill(parameters=parameters, formula=f"{module.result} = {formula}", law=law)
    failures: list[gymq.JudgeFailed] = []
    for _ in range(TRIES):
        try:
            verdict = (await judge.ask(prompt, read)).label
        except gymq.JudgeFailed as error:
            failures.append(error)
            continue
        if verdict is not None:
            return verdict == "yes"
    if len(failures) == TRIES:
        raise failures[-1]
    return False


def read_verdict(response: dict[str, Any]) -> str | None:
    """`yes` or `no`, if the judge says either: what follows the first `Answer:`, or else the last of the two words."""
    text = output_text(response)
    answer = _FIRST_ANSWER.search(text)
    said = [answer[1]] if answer else _WORD.findall(text)
    return said[-1].lower() if said else None


def read_hardened_verdict(response: dict[str, Any]) -> str | None:
    """Return `yes` or `no`, if the judge says either: the last `Answer:`, or else the last of the two words."""
    text = output_text(response)
    return _ANSWER.read(text) or _WORDS.read(text)


def without_comments(law: str) -> str:
    """Return the law's code without comments, docstrings and other constants that stand as statements.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is not Python.
    """
    tree = ast.parse(law)
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, [one for one in value if not _is_constant(one)] or [ast.Pass()])
    return ast.unparse(tree)


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
