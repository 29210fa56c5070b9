"""gymq init: files that work as they are, and never in the place of others."""

import ast
import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from string import Template

import pytest

from gymq.execution.loading.worker_source import find_worker
from gymq.ext.workbench import scaffold
from tests.cli.conftest import Command

IN_PROCESS = ["its tests", "example rows", "in this process", "end to end"]
FILES = ["README.md", "config.yaml", "data/example.jsonl", "tests/test_{}.py", "worker.py"]


@pytest.mark.parametrize(
    ("arguments", "checks", "files"),
    [
        (["capitals"], IN_PROCESS, FILES),
        pytest.param(["guesses", "--template", "multi-turn"], IN_PROCESS, FILES, marks=pytest.mark.nightly),
        pytest.param(["till", "--template", "tools"], IN_PROCESS, FILES, marks=pytest.mark.nightly),
        pytest.param(
            ["judged", "--template", "judge"], IN_PROCESS, [*FILES, "data/gold.jsonl"], marks=pytest.mark.nightly
        ),
        pytest.param(["programs", "--template", "sandbox"], IN_PROCESS, FILES, marks=pytest.mark.nightly),
        pytest.param(["asker", "--template", "program"], IN_PROCESS, [*FILES, "program.py"], marks=pytest.mark.nightly),
        pytest.param(
            ["looper", "--template", "agent"],
            ["its tests", "example rows", "end to end"],
            FILES,
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            ["packed", "--template", "package"],
            IN_PROCESS,
            [
                *("README.md", "pyproject.toml", "packed/__init__.py"),
                *(f"packed/{file}" for file in FILES if file != "README.md"),
            ],
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_what_a_template_makes_passes_its_own_test_as_it_stands(
    gymq: Command, here: Path, arguments: list[str], checks: list[str], files: list[str]
) -> None:
    made = gymq("init", *arguments)
    assert made.status == 0
    command = next(line.strip() for line in made.out.splitlines() if line.strip().startswith("gymq test"))
    called = gymq(*command.split()[1:])
    assert called.status == 0, called.out
    assert [line[2:19].strip() for line in called.out.splitlines()[1:] if line[2] != " "] == checks
    assert "mean reward 1.00" in called.out
    folder = here / arguments[0]
    tried = (folder / "README.md").read_text().replace("\\\n", "").partition("\ngymq collect ")[2].splitlines()
    assert [gymq("collect", *line.split()).status for line in tried[:1]] == [0] * ("packed" not in arguments)
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sorted(path.relative_to(folder).as_posix() for path in found) == sorted(
        file.format(folder.name) for file in files
    )


@pytest.mark.nightly
def test_an_agent_can_be_asked_for_in_short_and_in_another_folder(gymq: Command, here: Path) -> None:
    assert gymq("init", "mine", "--agent", "--folder", "agents/new").status == 0
    assert "gymq.Agent" in (here / "agents" / "new" / "mine" / "worker.py").read_text()
    assert gymq("test", "agents/new/mine").status == 0
    refused = gymq("init", "other", "--agent", "--template", "tools")
    assert refused.status == 2
    assert "--agent and --template tools" in refused.err


def test_the_help_names_every_template(gymq: Command, here: Path) -> None:
    shown = gymq("init", "--help").out
    for template in ("single-turn", "multi-turn", "tools", "judge", "sandbox", "agent", "program", "package"):
        assert f"• {template}:" in shown
    refused = gymq("init", "x", "--template", "toolz")
    assert refused.status != 0
    assert list(here.iterdir()) == []


@pytest.mark.nightly
def test_the_types_of_what_the_templates_make_are_right(gymq: Command, here: Path) -> None:
    pytest.importorskip("mypy")
    (here / "checked").mkdir()
    for template in ("single-turn", "multi-turn", "tools", "judge", "sandbox", "agent", "program", "package"):
        name = f"made_{template.replace('-', '_')}"
        gymq("init", name, "--template", template)
        worker = next((here / name).rglob("worker.py"))
        (here / "checked" / f"{name}.py").write_text(worker.read_text())
    files = map(str, sorted((here / "checked").iterdir()))
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(here / "cache"), *files]
    checked = subprocess.run(command, cwd=here, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.nightly
def test_the_package_can_be_installed_and_its_environment_is_found_by_name(gymq: Command, here: Path) -> None:
    gymq("init", "packed", "--template", "package")
    pip = [sys.executable, "-m", "pip"]
    offline = ["--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "wheel", *offline, "--no-build-isolation", "-w", here, here / "packed"], check=True)
    venv.create(here / "fresh")
    python = here / "fresh" / "bin" / "python"
    wheel = here / "packed-0.1.0-py3-none-any.whl"
    subprocess.run([*pip, "--python", python, "install", *offline, wheel], check=True)
    # gymq and what it needs are those of this environment.
    site = Path(sysconfig.get_path("purelib", vars={"base": str(here / "fresh")}))
    (site / "gymq.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()

    def call(*arguments: str) -> str:
        command = [str(python), "-c", "from gymq.cli import main; main()", *arguments]
        return subprocess.run(command, cwd=elsewhere, check=True, capture_output=True, text=True).stdout

    listed = [json.loads(line) for line in call("list", "--json").splitlines()]
    found = [worker for worker in listed if worker["name"] == "packed"]
    assert [(worker["kind"], worker["reward_range"]) for worker in found] == [("resources", [0.0, 1.0])]
    config = {"exam": {"resources_servers": {"packed": {"entrypoint": "worker.py", "domain": "other"}}}}
    (elsewhere / "config.yaml").write_text(json.dumps(config))
    assert "no mistakes" in call("config", "check", "--config", "config.yaml")


def test_the_configuration_it_makes_has_no_mistakes(gymq, here):
    gymq("init", "capitals")
    policy = "workers/models/simulated_model/config.yaml"
    assert gymq("config", "check", "-c", "capitals/config.yaml", "-c", policy).status == 0


def test_nothing_is_overwritten_and_nothing_else_is_made(gymq, here):
    (here / "capitals").mkdir()
    (here / "capitals" / "README.md").write_text("mine")
    called = gymq("init", "capitals")
    assert called.status == 2
    assert "capitals/README.md" in called.err
    assert [path.name for path in (here / "capitals").iterdir()] == ["README.md"]
    assert (here / "capitals" / "README.md").read_text() == "mine"


@pytest.mark.parametrize("name", ["3x", "a-b", "class", "ünder", "a.b", "../up", "x" * 41, ""])
def test_a_name_that_is_no_identifier_is_refused(gymq, here, name):
    called = gymq("init", name)
    assert called.status == 2
    assert list(here.iterdir()) == []


def test_a_name_that_can_be_used_is_proposed(gymq, here):
    assert gymq("init", "my-math env").err.endswith("letters, digits and underscores, such as my_math_env\n")


def test_no_name_is_one_that_a_template_imports_or_gives(here: Path) -> None:
    """Everything with a capital that a template defines by itself is among the names that no class is given."""
    found = set()
    for file in (Path(scaffold.__file__).parent).glob("*/*.py.txt"):
        tree = ast.parse(Template(file.read_text()).safe_substitute(cls="Made", name="made", folder="made"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom | ast.Import):
                found |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Assign):
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    found = {name for name in found if name[0].isupper() and not name.startswith("Made")}
    assert found - scaffold._TAKEN == {"Options"}  # inside of the class


@pytest.mark.parametrize("name", ["a", "_", "a1_b__c", "_2x", "Camel", "row", "judge", "program"])
@pytest.mark.parametrize("template", ["single-turn", "tools", "judge", "sandbox", "program"])
def test_every_identifier_gives_a_class_that_loads(gymq, here, name, template):
    gymq("init", name, "--template", template)
    assert find_worker(f"./{name}").kind == "resources"
    policy = "workers/models/simulated_model/config.yaml"
    called = gymq("config", "check", "-c", f"{name}/config.yaml", "-c", policy)
    assert called.status == 0, called.err


def test_a_folder_that_cannot_be_written_is_one_sentence(gymq, here):
    (here / "file").write_text("")
    called = gymq("init", "capitals", "--folder", "file")
    assert called.status == 2
    assert "cannot be written" in called.err
