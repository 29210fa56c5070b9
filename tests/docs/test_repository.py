"""The files around the code: they parse, and name targets, tools, files and versions that exist."""

import ast
import importlib
import re
import tomllib
from collections import Counter
from pkgutil import resolve_name
from xml.etree import ElementTree

import pytest
import yaml

from .blocks import ROOT

YAML = sorted(
    [*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "docker-compose.yml"],
)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))

_MAKE = re.compile(r"(?:^|`)make ([a-z][a-z-]*)", re.MULTILINE)
_PATH = re.compile(r"`((?:gymq|workers|tests|docs|requirements)/[a-z/._-]*)`")


def targets():
    """The targets of the Makefile that stand for no file."""
    found = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert found
    return set(found[1].split())


def recipe(target):
    """The commands of a target."""
    found = re.search(rf"^{target}:.*\n((?:\t.+\n)+)", MAKEFILE, re.MULTILINE)
    assert found, target
    return [line.strip().replace("$(BIN)/", ".venv/bin/") for line in found[1].splitlines()]


def commands(job):
    return [step["run"] for step in WORKFLOW["jobs"][job]["steps"] if "run" in step]


@pytest.mark.parametrize("file", YAML, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_of_the_repository_is_yaml(file):
    assert isinstance(yaml.safe_load(file.read_text(encoding="utf-8")), dict)


# Folders of tests that run several parts together, and what tests share.
TOGETHER = {
    *("cases", "chaos", "conformance", "docker", "docs", "e2e", "golden", "hubs", "kubernetes", "releases", "security"),
    *("support", "vllm", "wheel"),
}


def test_the_folders_of_tests_are_those_of_the_code():
    code = {folder.name for folder in (ROOT / "gymq").iterdir() if any(folder.glob("*.py"))}
    beside = {folder.name for folder in (ROOT / "tests").iterdir() if any(folder.rglob("*.py"))} - code - TOGETHER
    assert beside <= {module.stem for module in (ROOT / "gymq").glob("*.py")}
    assert code <= {folder.name for folder in (ROOT / "tests").iterdir()}


def test_every_form_for_issues_has_what_a_form_needs():
    forms = [file for file in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if file.name != "config.yml"]
    assert forms
    for file in forms:
        form = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= form.keys(), file.name
        asked = [part for part in form["body"] if part["type"] != "markdown"]
        assert len({part["id"] for part in asked}) == len(asked)
        assert all(part["attributes"]["label"] for part in asked)


@pytest.mark.parametrize("job", WORKFLOW["jobs"])
def test_a_job_of_the_workflow_calls_targets_that_exist(job):
    called = [target for command in commands(job) for target in _MAKE.findall(command)]
    assert called
    assert set(called) <= targets()


def test_the_workflow_tests_every_python_that_is_supported():
    versions = WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python-version"]
    classified = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if ":: Python :: 3." in line]
    assert versions == classified


def test_the_hooks_before_a_commit_are_the_linters():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    # ruff is given the files of the commit in place of the folder.
    linters = {command.removesuffix(" .") for command in recipe("lint")}
    hooks = {hook["entry"] for hook in repository["hooks"]}
    assert hooks == linters


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", ".github/pull_request_template.md", "README.md"])
def test_every_target_that_a_document_names_exists(document):
    named = set(_MAKE.findall((ROOT / document).read_text(encoding="utf-8")))
    assert named
    assert named <= targets()


def test_every_path_that_newcomers_are_sent_to_exists():
    named = _PATH.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(named) > 10
    assert not [path for path in named if not (ROOT / path).exists()]


def test_the_license_is_the_one_that_is_declared():
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["license-files"] == ["LICENSE"]
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


def test_the_pictures_are_drawings_that_adapt_to_dark_pages():
    pictures = sorted((ROOT / "docs" / "images").glob("*.svg"))
    assert pictures
    for picture in pictures:
        root = ElementTree.parse(picture).getroot()
        assert root.find("{http://www.w3.org/2000/svg}title") is not None, picture.name
        assert "prefers-color-scheme: dark" in picture.read_text(encoding="utf-8"), picture.name


def test_no_public_class_name_is_used_twice():
    names = Counter(
        node.name
        for file in (ROOT / "gymq").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, times in names.items() if times > 1] == []


def test_the_top_level_is_a_table_of_contents():
    flat = [path.name for path in (ROOT / "gymq").glob("*.py") if path.name != "__init__.py"]
    assert len(flat) <= 12


def test_an_integration_of_a_trainer_is_at_most_200_lines():
    files = [*(ROOT / "gymq/ext/trainers").glob("*.py"), *(ROOT / "gymq/ext/verifiers").glob("*server.py")]
    lines = {file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert {"trl.py", "skyrl.py", "env_server.py"} <= lines.keys()
    assert {name: count for name, count in lines.items() if count > 200} == {}


def test_the_command_line_ends_with_any_error_of_ours_in_one_place():
    handlers = [
        file.relative_to(ROOT / "gymq" / "cli").as_posix()
        for file in (ROOT / "gymq" / "cli").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.ExceptHandler) and node.type is not None and "GymqError" in ast.unparse(node.type)
    ]
    assert handlers == ["__init__.py"]


def test_a_failing_test_is_not_run_again():
    settings = [ROOT / "Makefile", ROOT / "pyproject.toml", *(ROOT / ".github").rglob("*.yml")]
    assert not [file.name for file in settings if "reruns" in file.read_text(encoding="utf-8")]


# Programs beside the package, which mypy does not read ----------------------------------------------------------------


def imports_of_gymq(folder):
    """The names that the Python files of a folder import from gymq, each with a file that does."""
    found: dict[str, str] = {}
    for file in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "gymq":
                found |= {f"{node.module}.{alias.name}": str(file.relative_to(ROOT)) for alias in node.names}
    return found


def is_in_a_module_that_lacks_its_library(name):
    """Whether a module has a class of this name, where it cannot be imported without a library that is not here."""
    module, _, own = name.rpartition(".")
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] == "gymq":
            return False
        tree = ast.parse(ROOT.joinpath(*module.split(".")).with_suffix(".py").read_bytes())
        return own in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    return False


@pytest.mark.parametrize("folder", ["benchmarks", "examples"])
def test_what_a_program_imports_from_gymq_exists(folder):
    missing = []
    for name, file in imports_of_gymq(folder).items():
        try:
            resolve_name(name)
        except (AttributeError, ImportError):
            if not is_in_a_module_that_lacks_its_library(name):
                missing.append(f"{file}: {name}")
    assert not missing


def test_no_module_but_that_of_the_subjects_spells_one_out():
    found = []
    for folder in ("gymq", "workers"):
        for file in (ROOT / folder).rglob("*.py"):
            if "tests" in file.parts or file == ROOT / "gymq" / "protocol" / "subjects.py":
                continue
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"gym\.\w", node.value):
                    found.append(f"{file.relative_to(ROOT)}:{node.lineno}: {node.value}")
    assert not found
