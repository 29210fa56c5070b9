"""The wheel in an environment of its own, far from the checkout, with each Python that gymq supports."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", pytest.param("3.12", marks=pytest.mark.nightly), pytest.param("3.13", marks=pytest.mark.nightly))
LARGEST = 2 * 1024**2  # bytes

pytest.importorskip("hatchling", reason="run `make test`: it installs what builds the wheel")

Run = Callable[..., subprocess.CompletedProcess[str]]


def run(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed, as if there was no checkout."""
    here = ("PYTHONPATH", "VIRTUAL_ENV", "GYMQ_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(here)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder], ROOT)
    (built,) = folder.glob("*.whl")
    return built


@functools.cache
def interpreter(version: str) -> str | None:
    """Return a Python of that version that works on this machine."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for found in (shutil.which(f"python{version}"), *sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))):
        if found is not None:
            # A shim of pyenv may be there without the version.
            said = subprocess.run(
                [found, "-c", "import sys, venv; print('.'.join(map(str, sys.version_info[:2])))"],
                capture_output=True,
                text=True,
                check=False,
            )
            if said.stdout.strip() == version:
                return str(found)
    return None


def link(locked: str, environment: Path) -> None:
    """Give an environment the packages in the locked versions that ours has: pip takes ten seconds to unpack them."""
    (site,) = environment.glob("lib/*/site-packages")
    for name, version in re.findall(r"^(\S+)==(\S+)", locked, re.MULTILINE):
        ours = distribution(name)
        assert ours.version == version, f"{name}: run `make .venv/installed-dev`"
        entries = {str(file) if file.parts[0] == ".." else file.parts[0] for file in ours.files or []}
        for entry in entries - {"__pycache__"}:
            (site / entry).symlink_to(Path(str(ours.locate_file(entry))).resolve())


@pytest.fixture(scope="module", params=VERSIONS)
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that holds the wheel and what it requires, in the locked versions."""
    python = interpreter(request.param)
    if python is None:
        pytest.skip(f"there is no Python {request.param} on this machine")
    folder = tmp_path_factory.mktemp(f"python-{request.param}")
    run([python, "-m", "venv", "--without-pip", folder / "env"], folder)
    locked = run([sys.executable, ROOT / "requirements" / "for_extras.py", ""], folder).stdout
    environment = str(folder / "env")
    pip = [sys.executable, "-m", "pip", "--python", environment, "install", "--quiet", "--no-deps", "--no-compile"]
    if python == sys.executable:
        link(locked, folder / "env")
    else:
        (folder / "locked.txt").write_text(locked)
        run([*pip, "--require-hashes", "--requirement", folder / "locked.txt"], folder)
    run([*pip, wheel], folder)
    return folder / "env" / "bin"


@pytest.fixture
def gymq(installed: Path, tmp_path: Path) -> Run:
    """Run `gymq` of the wheel in an empty folder."""
    return lambda *arguments: run([installed / "gymq", *arguments], tmp_path)


# The file ------------------------------------------------------------------------------------------------------------


def test_the_wheel_installs_one_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"gymq"}
    assert [name for name in names if Path(name).name.startswith(("test_", "conftest"))] == []
    assert wheel.stat().st_size < LARGEST


def test_the_wheel_has_all_of_the_package_every_worker_and_the_demo(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    wanted = {f"gymq/{path.relative_to(ROOT)}" for path in (ROOT / "workers").glob("*/*/worker.py")}
    assert len(wanted) > 40
    wanted |= {f"gymq/{path.relative_to(ROOT)}" for path in (ROOT / "workers").glob("*/*/config.yaml")}
    wanted |= {f"gymq/examples/demo/{name}" for name in ("config.yaml", "rows.jsonl")}
    sources = [path for path in (ROOT / "gymq").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted |= {str(path.relative_to(ROOT)) for path in sources}
    assert wanted - names == set()
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]


def test_the_metadata_names_no_extra_without_requirements() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [name for name, requires in project["optional-dependencies"].items() if not requires] == []


# Installed -----------------------------------------------------------------------------------------------------------


def test_it_says_its_version_and_is_imported_from_the_environment(installed: Path, gymq: Run, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert gymq("--version").stdout.strip() == project["version"]
    code = "import gymq, gymq.workers.resources.mcqa.worker as w; print(gymq.Resources.__name__, w.__file__)"
    name, file = run([installed / "python", "-c", code], tmp_path).stdout.split()
    assert name == "Resources"
    assert Path(file).is_relative_to(installed.parent)


def test_workers_of_installed_packages_are_found_by_name(installed: Path, tmp_path: Path) -> None:
    package = tmp_path / "packed-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: packed\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[gymq.resources]\npacked = packed.worker\n")
    code = "from gymq.execution.loading.registry import entered_modules; print(entered_modules('resources'))"
    assert run([installed / "python", "-c", code], tmp_path).stdout == "{'packed': 'packed.worker'}\n"


@pytest.mark.nightly
def test_it_lists_the_shipped_workers(gymq: Run) -> None:
    shown = [json.loads(line)["name"] for line in gymq("list", "--json").stdout.splitlines()]
    assert {"mcqa", "simple_agent", "simulated_model"} <= set(shown)


@pytest.mark.nightly
def test_a_worker_that_it_makes_passes_its_own_check(gymq: Run) -> None:
    gymq("init", "capitals")
    found = json.loads(gymq("test", "./capitals", "--json").stdout)
    assert found["ok"], found
    assert {step["name"]: step["status"] for step in found["steps"]}["end to end"] == "ok"


def test_the_first_environment_of_the_readme_is_rolled_out(gymq: Run, tmp_path: Path) -> None:
    for block in blocks_of(ROOT / "README.md"):
        if block.purpose in ("capitals.py", "rows.jsonl"):
            (tmp_path / block.purpose).write_text(block.text)
    shown = gymq("collect", "--resources", "capitals.py", "--rows", "rows.jsonl", "--output", "out.jsonl", "--json")
    assert json.loads(shown.stdout)["done"] == 2
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2


def test_shipped_rows_and_configurations_are_found_by_their_names(gymq: Run) -> None:
    # With the workers of one environment of the demo: the others need extras.
    configs = [f"--config=workers/{name}/config.yaml" for name in ("resources/mcqa", "models/simulated_model")]
    rows = "--rows=workers/resources/mcqa/data/example.jsonl"
    shown = gymq("collect", *configs, rows, "--output=out.jsonl", "--limit=2", "--json")
    assert json.loads(shown.stdout)["done"] == 2
