"""The command line as a whole: it starts fast, and every command says what it is for."""

import subprocess
import sys

import pytest

from gymq.cli import COMMANDS


def test_the_list_of_commands_needs_no_heavy_import():
    code = "import sys, gymq.cli; print(*sorted({'nats', 'pydantic', 'omegaconf'} & sys.modules.keys()))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_the_list_names_every_command(gymq):
    shown = gymq("--help")
    assert shown.status == 0
    assert all(name in shown.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_the_whole_of_its_help(gymq, name):
    shown = gymq(name, "--help")
    assert shown.status == 0
    assert f"Usage: gymq {name}" in shown.out
    assert len(shown.out.splitlines()) > 5


def test_a_command_explains_more_than_its_line_in_the_list(gymq):
    assert "what is stored in this folder" in gymq("rollouts", "--help").out


def test_an_unknown_option_is_refused_with_status_2(gymq):
    refused = gymq("status", "--loud")
    assert refused.status == 2
    assert "--loud" in refused.out + refused.err
