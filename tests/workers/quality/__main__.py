"""Verifies the public test data of reference libraries with our workers and prints how often they agree.

    python -m tests.workers.quality [math-verify] [jsonschema] [bfcl-eval] [sqlglot]

The source archives are downloaded from PyPI into a cache outside of the repository.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymq
from gymq.execution.loading import registry
from gymq.testing import Harness, ScriptedModel, reply

from .archives import ARCHIVES, unpacked
from .references import Case, function_calling, json_schema_suite, math_verify, sql_statements

REFERENCES: dict[str, tuple[str, Callable[[Path], Iterator[Case]]]] = {
    "math-verify": ("math_with_judge", math_verify),
    "jsonschema": ("structured_outputs", json_schema_suite),
    "bfcl-eval": ("xlam_fc", function_calling),
    "sqlglot": ("text_to_sql", sql_statements),
}
JUDGE = {"judge_model_server": {"type": "responses_api_models", "name": "judge"}}
AT_A_TIME = 8


async def equal_if_the_same(_model: str, params: dict[str, Any]) -> dict[str, Any]:
    """A judge that finds two queries equal if they are the same text."""
    _, _, queries = params["input"][-1]["content"].rpartition("Query A:\n")
    query_a, _, query_b = queries.partition("\n\nQuery B:\n")
    return reply("[[A=B]]" if query_a == query_b else "[[A!=B]]")


async def outcomes(worker: str, cases: list[Case]) -> list[float | str]:
    """The reward of each case, or why it has none."""
    slots = asyncio.Semaphore(AT_A_TIME)
    options = JUDGE if worker == "text_to_sql" else {}
    async with Harness(
        registry.find_class("resources", worker), options, models=ScriptedModel(equal_if_the_same)
    ) as env:

        async def outcome(case: Case) -> float | str:
            async with slots:
                try:
                    return (await env.verify(case.row, case.response)).reward
                except gymq.RolloutError as error:
                    return f"{error.failure_class}: {error.message}"

        return await asyncio.gather(*map(outcome, cases))


def report(package: str) -> None:
    """Verify the cases of one package and print a line for each group, then every case with another reward."""
    worker, cases_of = REFERENCES[package]
    cases = list(cases_of(unpacked(package)))
    found = asyncio.run(outcomes(worker, cases))
    total, same, known, reasons = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    others = []
    for case, outcome in zip(cases, found, strict=True):
        total[case.group] += 1
        if outcome == case.reward:
            same[case.group] += 1
        elif case.known:
            known[case.group] += 1
            reasons[case.known] += 1
        else:
            others.append(f"{case.name}: {outcome} instead of {case.reward}")
    print(f"\n{package} {ARCHIVES[package]} through {worker}: {sum(same.values())} of {len(cases)}")
    print("| group | cases | same | differ by design | differ |\n| --- | --- | --- | --- | --- |")
    for group, count in total.items():
        print(f"| {group} | {count} | {same[group]} | {known[group]} | {count - same[group] - known[group]} |")
    for reason, count in reasons.items():
        print(f"{count} by design: {reason}")
    print(*others, sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.workers.quality", description=__doc__)
    parser.add_argument("packages", nargs="*", choices=[[], *REFERENCES], metavar="package")
    for package in parser.parse_args().packages or REFERENCES:
        report(package)


if __name__ == "__main__":
    main()
