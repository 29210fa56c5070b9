"""Every finding of the attack on gymq has tests that keep it closed: README.md of this folder names them."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FINDINGS = ["C1", *(f"H{number}" for number in range(1, 12)), *(f"M{number}" for number in range(1, 15))]

_ROW = re.compile(r"^\| ([CHM]\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
_ROWS = dict(_ROW.findall((Path(__file__).parent / "README.md").read_text(encoding="utf-8")))


def names_in(file: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_every_finding_is_there() -> None:
    assert list(_ROWS) == FINDINGS


@pytest.mark.parametrize("finding", _ROWS)
def test_the_tests_of_a_finding_exist(finding: str) -> None:
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", _ROWS[finding])
    assert named or _ROWS[finding].startswith("open: "), "it names no test and does not say why"
    assert [f"{file}::{test}" for file, test in named if test not in names_in(ROOT / file)] == []
