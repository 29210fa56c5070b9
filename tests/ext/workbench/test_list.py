"""`gymq list`: every worker, and what it says of itself."""

import json

import pytest

from gymq.cli import make_app
from gymq.execution.loading.registry import worker_names
from gymq.ext.workbench.listing import RESOURCES_COLUMNS, resources_cells
from gymq.ext.workbench.worker_description import describe_worker
from tests.docs.blocks import ROOT
from tests.docs.test_facts import rows

RIGHT_OR_NOT = """
import gymq

class Grader(gymq.Resources[gymq.Row]):
    \"\"\"Reward 2 for
    anything.

    More of it.\"\"\"

    reward_range = (-2.0, 2.0)
    deterministic = False
    needs = frozenset({"network", "judge"})

    @gymq.tool
    async def look(self) -> str:
        \"\"\"Look.\"\"\"
        return ""

    async def verify(self, request):
        return 2.0
"""


def test_every_worker_is_listed_with_its_facts(capsys):
    assert make_app()(["list", "resources", "--json"], exit_on_error=False, result_action="return_value") == 0
    listed = {one["name"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    assert set(listed) == set(worker_names("resources"))
    assert listed["mcqa"]["reward_range"] == [0.0, 1.0]
    assert listed["math_with_judge"]["needs"] == ["judge"]


def test_a_worker_of_a_file_says_what_it_is(tmp_path):
    file = tmp_path / "env.py"
    file.write_text(RIGHT_OR_NOT)
    facts = describe_worker("resources", str(file))
    assert facts.summary == "Reward 2 for anything"
    assert facts.reward_range == (-2.0, 2.0)
    assert (facts.deterministic, facts.needs, facts.tools) == (False, ["judge", "network"], ["look"])


@pytest.mark.parametrize("kind", ["agents", "models", "resources"])
def test_the_tables_name_every_worker(kind, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert make_app()(["list", kind], exit_on_error=False, result_action="return_value") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in worker_names(kind))


def test_a_worker_that_cannot_be_imported_is_listed_with_the_reason(tmp_path):
    file = tmp_path / "env.py"
    file.write_text("import a_library_that_is_not_there\n")
    assert "a_library_that_is_not_there" in (describe_worker("resources", str(file)).problem or "")


SHOWN = ("rewards", "needs")  # `gymq list` shows the other columns too


def worker_row(name):
    """The facts about a resources worker, as docs/environments.md shows them."""
    facts = describe_worker("resources", name)
    assert facts.problem is None
    assert facts.reward_range is not None, f"{name} declares no reward_range"
    cells = dict(zip(RESOURCES_COLUMNS, resources_cells(facts), strict=True))
    return [f"[{name}](../workers/resources/{name}/README.md)", *(cells[column] for column in SHOWN)]


def test_the_table_of_workers_is_true():
    names = sorted(path.parent.name for path in (ROOT / "workers" / "resources").glob("*/worker.py"))
    expected = [worker_row(name) for name in names]
    shown = "\n".join(f"| {' | '.join(cells)} |" for cells in expected)
    table = rows("docs/environments.md", "worker", *SHOWN)
    assert table == expected, f"the table has to be:\n{shown}"
