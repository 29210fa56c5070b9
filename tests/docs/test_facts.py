"""Tables of the documents that repeat what the code says: the same names, the same numbers."""

import re
from pkgutil import resolve_name

import pytest

from gymq.bus.connection import HEADER_ROOM_BYTES
from gymq.bus.queue.client import LOOK_AGAIN_EVERY_S
from gymq.bus.rpc.routing import EXPIRES_S
from gymq.bus.rpc.serving import ACCEPT_AFTER_S
from gymq.bus.rpc.tries import ACCEPT_TIMEOUT_S
from gymq.defaults import MAX_TIMEOUT_S
from gymq.execution.loading import registry
from gymq.execution.model_runner import LOOK_EVERY_S
from gymq.execution.weights_follower import READ_AGAIN_S
from gymq.failures import RETRIES, RETRYABLE
from gymq.protocol.codec import COMPRESS_ABOVE_BYTES
from gymq.protocol.messages import MAX_BODY_BYTES, Stage
from gymq.runs.collection.collection import CATCH_UP_EVERY_S

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
    number, _, unit = value.replace(",", "").partition(" ")
    factor = NANOSECONDS_A_DAY if unit == "days" else UNITS[unit]
    assert resolve_name(name.strip("`")) == float(number) * factor


WHERE = (ROOT / "docs" / "where.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in code(WHERE) if name.startswith("gymq.")])
def test_a_place_in_the_code_exists(name):
    resolve_name(name)


def test_a_file_that_is_named_as_a_place_exists():
    files = [name for name in code(WHERE) if "/" in name[1:]]
    assert files
    assert not [name for name in files if not (ROOT / name).is_file()]


def test_each_step_names_a_place():
    cells = re.findall(r"^\| (?!step|---)(.+) \| (.+) \|$", WHERE, re.MULTILINE)
    assert len(cells) > 60
    assert not [step for step, where in cells if not re.search(r"`gymq[. ]", where)]


# Every time and size in the prose of a document, so that none is forgotten where its constant changes. `MB` is left
# out: that is how the server writes its own limit.
FIGURES = {
    "subjects.md": {
        COMPRESS_ABOVE_BYTES,
        MAX_BODY_BYTES,
        HEADER_ROOM_BYTES,
        MAX_TIMEOUT_S,
        ACCEPT_AFTER_S,
        ACCEPT_TIMEOUT_S,
        LOOK_EVERY_S,
        EXPIRES_S,
        READ_AGAIN_S,
    },
    "docs/architecture.md": {
        COMPRESS_ABOVE_BYTES,
        ACCEPT_AFTER_S,
        ACCEPT_TIMEOUT_S,
        CATCH_UP_EVERY_S,
        LOOK_AGAIN_EVERY_S,
    },
}


@pytest.mark.parametrize("document", FIGURES)
def test_the_figures_of_a_document_are_those_in_the_code(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    found = re.findall(r"(?<![\w.,])(\d[\d,.]*) (s|KiB|MiB|days)\b", text)
    units = UNITS | {"days": 24 * 3600}
    assert {float(number.replace(",", "")) * units[unit] for number, unit in found} == FIGURES[document]


def tries(retry):
    """How often something is tried, as the documents say it."""
    if retry is None:
        return "-"
    return "time" if retry.tries >= 1000 else f"{retry.tries}"


def test_every_failure_class_is_told_and_what_is_tried_again():
    table = rows("docs/files.md", "class", "why", "call", "effect", "verdict", "rollout", "later")
    limits = {code(cells[0])[0]: cells[2:] for cells in table}
    assert limits == {
        str(failure): [
            *(tries(retry) for retry in (retries.call, retries.effect, retries.verdict, retries.rollout)),
            "yes" if failure in RETRYABLE else "-",
        ]
        for failure, retries in RETRIES.items()
    }


def test_every_stage_is_told():
    assert [code(cells[0])[0] for cells in rows("docs/files.md", "stage", "what was in progress")] == list(Stage)


# The map of packages --------------------------------------------------------------------------------------------------


def mapped():
    """What the tables of architecture.md name: each module and package of gymq, and some packages inside."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Modules")[2]
    names = re.findall(r"^\| `([\w/]+)` \|", text, re.MULTILINE)
    assert len(set(names)) == len(names)
    return set(names)


def modules(folder):
    """The modules of a folder, and its packages with a stroke behind them."""
    inside = [path for path in folder.iterdir() if path.name not in ("__init__.py", "__pycache__")]
    files = {path.stem for path in inside if path.suffix == ".py"}
    return files | {f"{path.name}/" for path in inside if (path / "__init__.py").exists()}


def test_the_map_has_every_module_and_package_once():
    names = mapped()
    inside = {name for name in names if name.count("/") > 1}  # such as `bus/rpc/`
    assert names - inside == modules(ROOT / "gymq")
    assert all((ROOT / "gymq" / name).is_dir() for name in inside)


# The workers ----------------------------------------------------------------------------------------------------------

WORKERS = sorted(path.parent for path in (ROOT / "workers" / "resources").glob("*/worker.py"))


@pytest.mark.parametrize("folder", WORKERS, ids=lambda folder: folder.name)
def test_what_fools_a_worker_is_told_and_its_switch_exists(folder):
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert "\n## What fools it\n" in readme
    has_switch = "hardened" in registry.find_class("resources", folder.name).Options.model_fields
    assert ("`hardened`" in readme) == has_switch
