"""Tables of the documents that repeat what the code says: the same names, the same numbers."""

import ast
import inspect
import re
from importlib import import_module

import pytest

from gymq import registry
from gymq.cli.collect import collect
from gymq.cli.list import RESOURCES_COLUMNS, resources_cells
from gymq.cli.up import up
from gymq.messages import Stage
from gymq.outcomes import RETRIES, RETRYABLE
from gymq.worker_facts import facts_of

from .blocks import ROOT

UNITS = {"": 1, "s": 1, "KiB": 2**10, "MiB": 2**20}
NANOSECONDS_A_DAY = 24 * 3600 * 10**9


def rows(document, *headings):
    """The cells of the table with these headings, a list a row."""
    text = (ROOT / document).read_text(encoding="utf-8")
    head = re.escape("| " + " | ".join(headings) + " |\n")
    found = re.search(rf"^{head}\|[ -|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert found, f"{document} has no table {headings}"
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in found[1].splitlines()]


def code(cell):
    """The names in a cell."""
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize(
    ("value", "name"), [row[1:] for row in rows("docs/operations.md", "limit", "value", "name in the code")]
)
def test_a_limit_is_the_one_in_the_code(value, name):
    module, _, attribute = name.strip("`").rpartition(".")
    try:
        owner = import_module(module)
    except ModuleNotFoundError:
        package, _, class_name = module.rpartition(".")
        owner = getattr(import_module(package), class_name)
    number, _, unit = value.replace(",", "").partition(" ")
    factor = NANOSECONDS_A_DAY if unit == "days" else UNITS[unit]
    assert getattr(owner, attribute) == float(number) * factor


def tries(retry):
    """How often something is tried, as the documents say it."""
    if retry is None:
        return "-"
    return "time" if retry.tries >= 1000 else f"{retry.tries}"


def test_every_failure_class_is_told_and_what_is_tried_again():
    table = rows("docs/files.md", "class", "why", "call", "verdict", "rollout", "later")
    told = {code(cells[0])[0]: cells[2:] for cells in table}
    assert told == {
        str(failure): [
            *(tries(retry) for retry in (retries.call, retries.verdict, retries.rollout)),
            "yes" if failure in RETRYABLE else "-",
        ]
        for failure, retries in RETRIES.items()
    }


def test_every_stage_is_told():
    assert [code(cells[0])[0] for cells in rows("docs/files.md", "stage", "what was going on")] == list(Stage)


@pytest.mark.parametrize(("command", "column"), [(collect, 1), (up, 2)])
def test_every_option_of_a_command_is_told(command, column):
    table = rows("docs/configuration.md", "option", "`collect`", "`up`", "meaning")
    told = {code(cells[0])[0].split()[0].removeprefix("--") for cells in table if cells[column]}
    parameters = inspect.signature(command).parameters.values()
    assert told == {one.name.replace("_", "-") for one in parameters if one.kind is one.KEYWORD_ONLY}


# The module map -------------------------------------------------------------------------------------------------------


def module_groups():
    """The group of each module or package of gymq, as the module map tells it."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Modules")[2]
    groups = {}
    for number, group in enumerate(re.split(r"^\*\*\d\. ", text, flags=re.MULTILINE)[1:], 1):
        for line in group.splitlines():
            if line.startswith("| `"):
                for module in code(line.split("|")[1]):
                    assert module not in groups, f"{module} is there twice"
                    groups[module.rstrip("/")] = number
    return groups


def imports():
    """What each module or package of gymq imports of the others."""
    found = {}
    for file in sorted((ROOT / "gymq").rglob("*.py")):
        unit = file.relative_to(ROOT / "gymq").parts[0].removesuffix(".py")
        if unit == "__init__":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "gymq":
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gymq."):
                names = [node.module.split(".")[1]]
            elif isinstance(node, ast.Import):
                names = [alias.name.split(".")[1] for alias in node.names if alias.name.startswith("gymq.")]
            else:
                names = []
            found.setdefault(unit, set()).update(name for name in names if name != unit)
    return found


def test_the_module_map_has_every_module_once():
    assert sorted(module_groups()) == sorted(imports())


def test_imports_go_from_a_group_to_itself_or_to_groups_above_it():
    groups = module_groups()
    upward = [
        f"{module} imports {imported}"
        for module, all_imported in imports().items()
        for imported in all_imported
        if groups[imported] > groups[module]
    ]
    assert not upward


def test_imports_have_no_circle():
    waiting = imports()
    while waiting:
        free = {module for module, needed in waiting.items() if not needed & waiting.keys()}
        assert free, f"these import each other in a circle: {sorted(waiting)}"
        waiting = {module: needed for module, needed in waiting.items() if module not in free}


# The workers ----------------------------------------------------------------------------------------------------------


def worker_row(name):
    """The facts about a resources worker, as the README shows them."""
    facts = facts_of("resources", name)
    assert facts.problem is None
    assert facts.reward_range is not None, f"{name} declares no reward_range"
    return [f"[{name}](workers/resources/{name}/README.md)", *resources_cells(facts)]


def test_the_table_of_workers_is_true():
    names = sorted(path.parent.name for path in (ROOT / "workers" / "resources").glob("*/worker.py"))
    expected = [worker_row(name) for name in names]
    shown = "\n".join(f"| {' | '.join(cells)} |" for cells in expected)
    table = rows("README.md", "worker", *RESOURCES_COLUMNS)
    assert table == expected, f"the table has to be:\n{shown}"


def test_what_fools_each_worker_is_told_and_its_switch_exists():
    told = rows("docs/verifiers.md", "worker", "tried", "closed", "still works", "switch")
    workers = sorted(path.parent.name for path in (ROOT / "workers/resources").glob("*/worker.py"))
    links = [f"[{name}](../workers/resources/{name}/README.md#what-fools-it)" for name in workers]
    assert [row[0] for row in told] == links
    for name, row in zip(workers, told, strict=True):
        readme = (ROOT / "workers/resources" / name / "README.md").read_text(encoding="utf-8")
        assert "\n## What fools it\n" in readme, name
        assert all(row), name
        switch = ["hardened"] if "hardened" in registry.find("resources", name).Options.model_fields else []
        assert code(row[-1]) == switch, name
        assert ("`hardened`" in readme) == bool(switch), name
