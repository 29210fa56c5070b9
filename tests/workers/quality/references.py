"""Cases of other projects, as rows and responses of our workers with the reward that they should get."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymq.testing import function_call, prompt, reply

ASK = prompt("See the row.")


@dataclass(frozen=True)
class Case:
    """One row and response.

    Attributes:
        group: cases that are counted together.
        name: where it is from.
        known: why our worker rightly does something else; empty if it should do the same.
    """

    group: str
    name: str
    row: dict[str, Any]
    response: dict[str, Any]
    reward: float
    known: str = ""


KNOWN_OF_MATH_VERIFY = {
    "test_all.py::test_number_extraction[6]": "the expected answer is read as LaTeX, where a comma is no decimal point",
    "test_all.py::test_latex_notation[5]": "plain numbers in the reply are read too, so that the 9 is found",
    "test_all.py::test_latex_notation[6]": "plain numbers in the reply are read too, so that the 9 is found",
    "test_all.py::test_math_extraction_edge_cases[13]": "the expected answer is an answer, not a whole solution",
    "test_yujianll.py::test_string_extraction[9]": "1 - 1/e is not 1 + 1/e; the test expects what the library does",
}


# math-verify: pairs of answers ----------------------------------------------------------------------------------------

PAIR = (["gold", "pred", "expected"], ["gold", "pred", "result"])
MEMBERS_OF_PAIRS = 3


def math_verify(source: Path) -> Iterator[Case]:
    """The pairs of expected and given answers in its tests; those of tests with other parameters are left out."""
    for file in sorted((source / "tests").glob("test_*.py")):
        for function in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(function, ast.FunctionDef):
                for number, pair in enumerate(_pairs(function)):
                    expected, given, equal = pair
                    row = {**ASK, "question": "", "expected_answer": expected}
                    name = f"{file.name}::{function.name}[{number}]"
                    known = KNOWN_OF_MATH_VERIFY.get(name, "")
                    yield Case(file.stem, name, row, reply(given), float(equal), known)


def _pairs(function: ast.FunctionDef) -> Iterator[tuple[str, str, int]]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.parametrize":
            names, values = decorator.args[:2]
            if [name.strip() for name in ast.literal_eval(names).split(",")] in PAIR and isinstance(values, ast.List):
                for value in values.elts:
                    try:
                        yield ast.literal_eval(value)
                    except ValueError:  # it is computed
                        continue


# jsonschema: the JSON Schema Test Suite -------------------------------------------------------------------------------

DRAFTS = ("draft2020-12",)


def json_schema_suite(source: Path) -> Iterator[Case]:
    """Schemas of a draft with data that fit or do not. What is optional in the draft is left out."""
    for draft in DRAFTS:
        for file in sorted((source / "json" / "tests" / draft).glob("*.json")):
            for group in json.loads(file.read_text(encoding="utf-8")):
                for case in group["tests"]:
                    row = {**ASK, "schema_str": json.dumps(group["schema"]), "schema_type": "json"}
                    name = f"{file.stem}: {group['description']}: {case['description']}"
                    yield Case(
                        draft,
                        name,
                        row,
                        reply(json.dumps(case["data"])),
                        float(case["valid"]),
                        _known(file.stem, group["schema"]) if case["valid"] else "",
                    )


def _known(file: str, schema: Any) -> str:
    text = json.dumps(schema)
    if '"properties"' in text:
        return "objects have to have all the members that the schema names, and no others"
    if "http://localhost:1234" in text or file == "refRemote":
        return "schemas elsewhere are not fetched"
    return ""


# bfcl-eval: the Berkeley Function Calling Leaderboard -----------------------------------------------------------------

FUNCTION_SETS = ("simple", "multiple", "parallel", "parallel_multiple", "live_simple", "live_multiple", "live_parallel")


def function_calling(source: Path) -> Iterator[Case]:
    """The right calls of each question, as they are and spoilt."""
    for name in FUNCTION_SETS:
        file = source / "bfcl_eval" / "data" / "possible_answer" / f"BFCL_v3_{name}.json"
        for line in file.read_text(encoding="utf-8").splitlines():
            question = json.loads(line)
            calls = [_first_choice(call) for call in question["ground_truth"]]
            row = {**ASK, "expected_answers": calls}
            yield from _variants(question["id"], row, calls)


def _first_choice(call: dict[str, dict[str, list[Any]]]) -> dict[str, Any]:
    """A call with the first of the values that are right; those that may be left out are."""
    ((name, arguments),) = call.items()
    return {
        "name": name,
        "arguments": {key: values[0] for key, values in arguments.items() if values and "" not in values},
    }


def _variants(question: str, row: dict[str, Any], calls: list[dict[str, Any]]) -> Iterator[Case]:
    others = {"an argument is missing": _without_an_argument(calls[0]), "an argument is another": _changed(calls[0])}
    variants = [
        ("the right calls", calls, 1.0),
        ("the right calls, backwards", calls[::-1], 1.0),
        ("a call too many", [*calls, {"name": "another", "arguments": {}}], 0.0),
        ("a call is missing", calls[1:], 0.0),
        *((group, [spoilt, *calls[1:]], 0.0) for group, spoilt in others.items() if spoilt is not None),
    ]
    for group, made, reward in variants:
        items = [function_call(call["name"], call["arguments"], f"call_{number}") for number, call in enumerate(made)]
        known = "" if made != calls[::-1] else "an expected call takes the first call that fits, as in NeMo Gym"
        yield Case(group, f"{question}: {group}", row, reply(*items), reward, known)


def _without_an_argument(call: dict[str, Any]) -> dict[str, Any] | None:
    arguments = dict(call["arguments"])
    if not arguments:
        return None
    arguments.popitem()
    return {**call, "arguments": arguments}


def _changed(call: dict[str, Any]) -> dict[str, Any] | None:
    for key, value in call["arguments"].items():
        return {**call, "arguments": {**call["arguments"], key: [value, "and something else"]}}
    return None


# sqlglot: statements of SQL -------------------------------------------------------------------------------------------

QUERY_WORDS = ("SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH ")


def sql_statements(source: Path) -> Iterator[Case]:
    """Statements in a fenced block and in prose; each has to be found as it is."""
    file = source / "tests" / "fixtures" / "identity.sql"
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        statement = line.strip().rstrip(";")
        if not statement or statement.startswith("--") or "`" in statement:
            continue
        row = {**ASK, "sql": statement, "sql_dialect": "sqlite", "sql_prompt": ""}
        ways = {"in a block": f"It is this:\n```sql\n{statement};\n```\nThat is all; I hope it helps."}
        if statement.upper().startswith(QUERY_WORDS):
            ways["in a block without a tag"] = f"It is this:\n```\n{statement};\n```\nThat is all; I hope it helps."
            ways["in prose"] = f"It is this: {statement};\nThat is all."
        for group, text in ways.items():
            yield Case(group, f"identity.sql:{number} {group}", {**row, "sql": f"{statement};"}, reply(text), 1.0)
