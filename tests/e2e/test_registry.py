"""Finding the class of a worker: by name, by module, by file."""

import sys
from pathlib import Path

import pytest

from gymq.execution.loading import registry
from gymq.execution.loading.registry import WorkerNotFound
from gymq.testing import Harness, prompt, reply

ONE = """
import gymq

class Env(gymq.Resources[gymq.Row]):
    def verify_in_process(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        return gymq.Verdict(1.0)
"""
TWO = (
    ONE
    + """
class Other(Env):
    pass
"""
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_a_worker_is_found_by_its_name() -> None:
    assert registry.find_class("agents", "simple_agent").__name__ == "SimpleAgent"


def test_a_worker_in_the_current_folder_is_found_by_its_name(folder: Path) -> None:
    place = folder / "workers" / "resources" / "registry_test_env"
    place.mkdir(parents=True)
    (place / "worker.py").write_text(ONE)
    assert registry.find_class("resources", "registry_test_env").__name__ == "Env"


def test_a_shipped_worker_is_a_module_of_gymq() -> None:
    assert registry.find_class("resources", "mcqa").__module__ == "gymq.workers.resources.mcqa.worker"
    assert registry.find_class("resources", "gymq.workers.resources.mcqa.worker") is registry.find_class(
        "resources", "mcqa"
    )


def test_a_package_adds_workers_and_replaces_none_of_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "of_a_package.py").write_text(ONE)
    entered = {"mcqa": "of_a_package", "another": "of_a_package"}
    monkeypatch.setattr(registry, "entered_modules", lambda kind: entered)
    assert registry.find_class("resources", "another").__module__ == "of_a_package"
    assert registry.find_class("resources", "mcqa").__module__ == "gymq.workers.resources.mcqa.worker"


def test_a_worker_in_the_current_folder_imports_what_lies_beside_it(folder: Path) -> None:
    place = folder / "workers" / "resources" / "registry_test_two"
    place.mkdir(parents=True)
    (place / "parts.py").write_text("REWARD = 0.5\n")
    (place / "worker.py").write_text("from workers.resources.registry_test_two.parts import REWARD\n" + ONE)
    assert (
        registry.find_class("resources", "registry_test_two").__module__ == "workers.resources.registry_test_two.worker"
    )


def test_the_former_module_of_a_shipped_worker_is_answered_with_its_name(folder: Path) -> None:
    with pytest.raises(WorkerNotFound, match=r"workers are in gymq\.workers\.resources\.no_such_worker\.worker$"):
        registry.find_class("resources", "workers.resources.no_such_worker.worker")


def test_a_worker_is_found_by_its_module(folder: Path) -> None:
    (folder / "registry_test_package").mkdir()
    (folder / "registry_test_package" / "env.py").write_text(TWO)
    assert registry.find_class("resources", "registry_test_package.env:Other").__name__ == "Other"


def test_a_worker_is_found_by_its_file(folder: Path) -> None:
    (folder / "env.py").write_text(ONE)
    assert registry.find_class("resources", "./env.py").__name__ == "Env"
    assert registry.find_class("resources", str(folder / "env.py")).__name__ == "Env"


def test_a_file_is_loaded_once(folder: Path) -> None:
    (folder / "env.py").write_text(ONE)
    assert registry.find_class("resources", "env.py") is registry.find_class("resources", "./env.py:Env")


def test_files_of_the_same_name_are_different_workers(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "env.py").write_text(ONE)
    assert registry.find_class("resources", "a/env.py") is not registry.find_class("resources", "b/env.py")


def test_a_file_may_import_what_lies_beside_it(folder: Path) -> None:
    (folder / "apart").mkdir()
    (folder / "apart" / "registry_test_helper.py").write_text("REWARD = 0.5\n")
    (folder / "apart" / "env.py").write_text("from registry_test_helper import REWARD\n" + ONE)
    assert registry.find_class("resources", "apart/env.py").__name__ == "Env"


async def test_a_worker_from_a_file_verifies_in_a_process(folder: Path) -> None:
    (folder / "env.py").write_text(ONE)
    async with Harness(registry.find_class("resources", "env.py")) as env:
        assert (await env.verify(prompt("?"), reply("!"))).reward == 1.0


def test_a_file_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(WorkerNotFound, match=rf"file {folder}/nothing\.py not found"):
        registry.find_class("resources", "nothing.py")


def test_a_name_that_is_not_there_says_where_it_was_looked_for() -> None:
    with pytest.raises(WorkerNotFound, match=r"no folder workers/resources/nothing with worker\.py"):
        registry.find_class("resources", "nothing")


@pytest.mark.parametrize("name", ["", "a b", "../x", "1a"])
def test_what_cannot_be_a_name_is_refused(name: str) -> None:
    with pytest.raises(WorkerNotFound, match="invalid worker name"):
        registry.find_class("resources", name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nimport no_such_module_anywhere", "No module named 'no_such_module_anywhere' ({file}:2)"),
        ("import gymq\n\ngymq.Resource", "has no attribute 'Resource'; did you mean Resources or Response? ({file}:3)"),
        ("from gymq import Verdit", "; did you mean Verdict? ({file}:1)"),
        ("raise RuntimeError('first\\nsecond')", "RuntimeError: first second ({file}:1)"),
        ("import sys; sys.exit('no licence')", "SystemExit: no licence ({file}:1)"),
    ],
)
def test_a_file_that_cannot_be_loaded_says_why_in_one_line(folder: Path, text: str, said: str) -> None:
    (folder / "env.py").write_text(text)
    with pytest.raises(WorkerNotFound) as caught:
        registry.find_class("resources", "env.py")
    assert str(caught.value).startswith(f"{folder}/env.py cannot be loaded: ")
    assert said.format(file=folder / "env.py") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_syntax_error_shows_its_line_of_code(folder: Path) -> None:
    (folder / "env.py").write_text("class Env:\n    def verify(self)\n        pass\n")
    with pytest.raises(WorkerNotFound) as caught:
        registry.find_class("resources", "env.py")
    first, code, caret = str(caught.value).splitlines()
    assert first == f"{folder}/env.py cannot be loaded: SyntaxError: expected ':' ({folder}/env.py:2)"
    assert (code, caret) == ("  def verify(self)", "                  ^")


def test_a_module_that_cannot_be_imported_says_why(folder: Path) -> None:
    (folder / "registry_test_broken").mkdir()
    (folder / "registry_test_broken" / "env.py").write_text("1 / 0")
    with pytest.raises(WorkerNotFound, match=r"cannot import registry_test_broken\.env .*ZeroDivisionError"):
        registry.find_class("resources", "registry_test_broken.env")


def test_of_several_classes_one_must_be_named(folder: Path) -> None:
    (folder / "env.py").write_text(TWO)
    with pytest.raises(WorkerNotFound, match=r"found Env, Other; name it as env\.py:Class"):
        registry.find_class("resources", "env.py")
    assert registry.find_class("resources", "env.py:Env").__name__ == "Env"


@pytest.mark.parametrize("name", ["Nothing", "gymq", "__name__"])
def test_a_class_that_is_not_there_is_refused(folder: Path, name: str) -> None:
    (folder / "env.py").write_text(ONE)
    with pytest.raises(WorkerNotFound, match=rf"env\.py:{name}: no class {name} derived from gymq\.Resources"):
        registry.find_class("resources", f"env.py:{name}")


def test_a_class_of_another_kind_is_refused(folder: Path) -> None:
    (folder / "env.py").write_text(ONE)
    with pytest.raises(WorkerNotFound, match=r"env\.py defines no class derived from gymq\.Agent$"):
        registry.find_class("agents", "env.py")


def test_classes_that_a_module_only_imports_do_not_count(folder: Path) -> None:
    (folder / "registry_test_base.py").write_text(ONE)
    (folder / "env.py").write_text("from registry_test_base import Env\nclass Mine(Env): pass\n")
    assert registry.find_class("resources", "env.py").__name__ == "Mine"
