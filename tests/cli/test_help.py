"""The command line as a whole: it starts fast, and every command says what it is for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gymq.cli import GROUPS, all_commands

from .conftest import entry

HEAVY = ("aiohttp", "asyncio", "msgspec", "nats", "omegaconf", "pydantic", "ssl", "yaml")
# Prints, for each command, what of that its help has imported.
SHOW_HELP = f"""
import contextlib, io, json, sys
from gymq.cli import all_commands, make_app

imported, before = {{}}, set()
for name in ["--help", *all_commands()]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        make_app(name)([name] if name == "--help" else [name, "--help"])
    now = {{module for module in {HEAVY} if module in sys.modules}}
    imported[name], before = sorted(now - before), now
print(json.dumps(imported))
"""


def test_help_imports_nothing_heavy():
    """What a command needs to do its work is imported inside it, or by its module in gymq/cli/actions."""
    shown = subprocess.run([sys.executable, "-c", SHOW_HELP], capture_output=True, text=True, check=True)
    imported = json.loads(shown.stdout)
    assert set(imported) == {"--help", *all_commands()}
    assert {name: modules for name, modules in imported.items() if modules} == {}


def test_the_package_runs_as_the_command():
    shown = subprocess.run([sys.executable, "-m", "gymq", "--help"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("Usage: gymq COMMAND")


def test_the_list_names_every_command(gymq):
    shown = gymq("--help")
    assert shown.status == 0
    assert all(name in shown.out for name in all_commands())


def test_the_list_has_groups_and_a_line_for_each_command_at_80_columns(gymq, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = gymq("--help").out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("╭")] == [*GROUPS, "Options"]
    assert max(map(len, lines)) <= 80
    shown = {line.split()[1]: line for line in lines if line.startswith("│")}
    assert all(command.line in shown[name] for name, command in all_commands().items())


def test_the_options_of_collect_are_in_groups(gymq):
    lines = gymq("collect", "--help").out.splitlines()
    groups = [line.split()[1] for line in lines if line.startswith("╭")]
    assert groups == ["Arguments", "Data", "Environment", "Model", "Judge", "Sampling", "Limits", "Output"]


@pytest.mark.parametrize("name", all_commands())
def test_a_command_shows_the_whole_of_its_help(gymq, name):
    shown = gymq(name, "--help")
    assert shown.status == 0
    assert f"Usage: gymq {name}" in shown.out
    assert len(shown.out.splitlines()) > 5


def test_a_command_explains_more_than_its_line_in_the_list(gymq):
    assert "otherwise the store in this folder" in gymq("rollouts", "--help").out


def test_an_unknown_option_is_refused_with_status_2(gymq):
    refused = gymq("status", "--loud")
    assert refused.status == 2
    assert "--loud" in refused.out + refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["collect"], "missing --rows FILE, or --dataset NAME; `gymq collect --help` explains them"),
        (["test"], "missing WORKER; `gymq test --help` explains it"),
        (["weights", "push"], "missing --model VALUE; `gymq weights push --help` explains it"),
        (["collect", "--rows"], "--rows requires an argument"),
        (["runs"], "no command 'runs'; did you mean `gymq rollouts`?"),
        (["run"], "no command 'run'; did you mean `gymq collect`?"),
        (["colect"], "no command 'colect'; did you mean `gymq collect`?"),
        (["nothing"], "no command 'nothing'; `gymq --help` lists them"),
        (["list", "my_env.py"], 'Choose from: "agents", "models", "resources", "benchmarks"'),
        (["collect", "--rowz", "x"], "Did you mean --rows?"),
        (["demo", "extra"], "unexpected argument 'extra'; `gymq demo --help` explains"),
    ],
)
def test_a_parameter_that_is_not_given_is_missing(gymq, arguments, message):
    refused = gymq(*arguments)
    assert refused.status == 2
    assert message in refused.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("collect", "--num-repeats", "0"),
        ("collect", "--num-repeats", "-3"),
        ("collect", "--concurrency", "0"),
        ("collect", "--limit", "0"),
        ("demo", "--num-repeats", "0"),
        ("up", "--replicas", "0"),
    ],
)
def test_a_count_of_none_is_refused(gymq, arguments):
    refused = gymq(*arguments)
    assert refused.status == 2
    assert f'Invalid value "{arguments[2]}" for {arguments[1]}. Must be >= 1.' in refused.err


@pytest.mark.parametrize("arguments", [("up", "--health-port"), ("bridge", "--port"), ("view", "--port")])
def test_a_port_that_there_is_not_is_refused(gymq, arguments):
    refused = gymq(*arguments, "99999")
    assert refused.status == 2
    assert f'Invalid value "99999" for {arguments[-1]}. Must be <= 65535.' in refused.err


@pytest.mark.parametrize("command", ["cancel", "profile", "rollouts"])
def test_a_task_that_there_is_not_is_refused(gymq, command):
    refused = gymq(command, "--run", "r", "--task", "-1")
    assert refused.status == 2
    assert 'Invalid value "-1" for --task. Must be >= 0.' in refused.err


def test_output_into_a_file_on_a_full_disk_ends_with_a_sentence(here):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*entry(), "config", "show"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "gymq: No space left on device\n")


@pytest.mark.parametrize("level", ["INFO", "Warning"])
def test_a_log_level_is_known_in_any_case(gymq, here, level):
    called = gymq("view", "--log-level", level, "--nats", "nats://127.0.0.1:1")
    assert "cannot connect to NATS" in called.err


@pytest.mark.parametrize("name", ["bridge", "collect", "demo", "env-server", "up", "view"])
def test_an_unknown_log_level_is_refused_with_the_known_ones(gymq, name):
    refused = gymq(name, "--log-level", "loud")
    assert refused.status == 2
    assert 'Choose from: "debug", "info", "warning", "error".' in refused.err


def test_a_folder_that_is_gone_is_a_sentence(tmp_path: Path):
    ended = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *entry(), "status"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (2, "gymq: the working folder has been deleted: change to another one\n")
