"""All errors have one root, and a command prints any of them as one sentence."""

import ast
import builtins
import sys
from pathlib import Path

import cyclopts
import pytest

import gymq
from gymq import cli
from gymq.bus import BusError
from gymq.errors import UsageError

ROOT = Path(__file__).parents[2]
# Programs in a sandbox, where gymq is not installed.
IN_A_SANDBOX = {"bird_sql/queries.py", "harness/main.py", "harness/program.py", "harness/values.py"}
BUILTIN = {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)}
FILES = [
    file
    for top in ("gymq", "workers")
    for file in sorted((ROOT / top).rglob("*.py"))
    if "tests" not in file.parts and "/".join(file.parts[-2:]) not in IN_A_SANDBOX
]


def exception_classes(source):
    """Yield the name and the bases of each class of a file that derives from an exception of Python."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).removeprefix("gymq.") for base in node.bases}
            if bases & (BUILTIN | {"GymqError"}):
                yield node.name, bases


def test_every_exception_class_has_the_root():
    found = {file: list(exception_classes(file.read_text(encoding="utf-8"))) for file in FILES}
    without = [
        f"{file.relative_to(ROOT)}: {name}"
        for file, classes in found.items()
        for name, bases in classes
        if "GymqError" not in bases and file != ROOT / "gymq" / "errors.py"
    ]
    assert sum(map(len, found.values())) > 40
    assert not without


def test_a_class_without_the_root_is_noticed():
    assert list(exception_classes("class Lost(ValueError): pass")) == [("Lost", {"ValueError"})]
    assert list(exception_classes("class Lost(gymq.GymqError): pass")) == [("Lost", {"GymqError"})]


def run_command(monkeypatch, error):
    """Run a command line whose command raises an error."""
    app = cyclopts.App(name="gymq")

    @app.command
    def fail():
        raise error

    monkeypatch.setattr("gymq.processes.memory.hide_memory", lambda: None)  # it would hold for all tests after this one
    monkeypatch.setattr(cli, "make_app", lambda asked_for: app)
    monkeypatch.setattr(sys, "argv", ["gymq", "fail"])
    cli.main()


@pytest.mark.parametrize("kind", [gymq.GymqError, BusError, UsageError])
def test_a_command_prints_any_error_as_one_sentence(monkeypatch, capsys, kind):
    with pytest.raises(SystemExit) as ended:
        run_command(monkeypatch, kind("nothing answers at nats://nowhere"))
    assert ended.value.code == 2
    assert capsys.readouterr().err == "gymq: nothing answers at nats://nowhere\n"


def test_a_fault_of_gymq_keeps_its_traceback(monkeypatch):
    with pytest.raises(ZeroDivisionError):
        run_command(monkeypatch, ZeroDivisionError())


def test_what_cannot_be_decoded_is_caught_under_one_name():
    handlers = {
        file.name
        for file in FILES
        if "msgspec.DecodeError" in file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler) and node.type and "msgspec.DecodeError" in ast.unparse(node.type)
    }
    assert handlers == {"codec.py", "jsonl.py"}, "the others catch UNDECODABLE"
