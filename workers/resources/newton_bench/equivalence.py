"""Asking a judge whether a submitted law has the form of the true one."""

from __future__ import annotations

from gymq.workers.resources.newton_bench.laws import Module
from gymq.workers.resources.newton_bench.rules import LawRule

import gymq
from gymq.judge import Judge, PromptTemplate

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
