"""The page about migration names every command and flag of NeMo Gym, and nothing of gymq that is not there."""

import configparser
import re
from pathlib import Path

import pytest

from gymq.cli import all_commands
from gymq.config.unknown import WITHOUT_MEANING
from gymq.ext.nemo_gym.ng.collecting import COLLECTION, NOT_USED
from tests.cli.conftest import Command
from tests.support.compatibility import record

from .nemo_gym_package import CURRENT, fetched

PAGE = (Path(__file__).parents[3] / "docs" / "migration.md").read_text()
CODE = set(re.findall(r"`([^`\n]+)`", PAGE))


def test_every_command_of_nemo_gym_has_a_row() -> None:
    (entry_points,) = fetched(CURRENT).glob("nemo_gym-*.dist-info/entry_points.txt")
    parser = configparser.ConfigParser(delimiters=["="])
    parser.read(entry_points)
    commands = [name for name in parser["console_scripts"] if name.startswith("ng_")]
    assert len(commands) > 20
    assert [name for name in commands if name not in CODE] == []


def test_every_flag_of_nemo_gym_has_a_row() -> None:
    source = (fetched(CURRENT) / "nemo_gym" / "cli" / "main.py").read_text()
    flags = set(re.findall(r"_(?:value|bool)_flag\(\s*\"([a-z-]+)\"", source))
    flags |= set(re.findall(r"add_argument\(\s*\"--([a-z-]+)\"", source))
    assert len(flags) > 30
    named = {word for text in CODE for word in re.findall(r"--[a-z-]+", text)}
    assert [flag for flag in sorted(flags - {"version"}) if f"--{flag}" not in named] == []
    result = f"all {len(flags)} flags and all settings of a collection have a row in [migration](migration.md)"
    record("NeMo Gym: commands and flags", CURRENT, "its package", result)


def test_every_group_and_command_of_gym_has_a_row() -> None:
    source = (fetched(CURRENT) / "nemo_gym" / "cli" / "main.py").read_text()
    commands = re.findall(r"^    \"([a-z]+(?: [a-z]+)?)\": Command\(", source, re.MULTILINE)
    assert len(commands) > 20
    assert [name for name in commands if not any(text.startswith(f"gym {name}") for text in CODE)] == []


@pytest.mark.parametrize("setting", sorted({*COLLECTION, *NOT_USED}))
def test_every_setting_of_a_collection_has_a_row(setting: str) -> None:
    assert setting in CODE


def test_the_settings_of_servers_that_are_ignored_have_a_row_or_need_none() -> None:
    wanting = {name for name in WITHOUT_MEANING if name not in CODE}
    assert wanting == {
        "global_aiohttp_client_request_debug",
        "global_aiohttp_connector_limit",
        "global_aiohttp_connector_limit_per_host",
        "model_call_capture_dir",
        "upload_rollouts",
        "uvicorn_logging_show_200_ok",
        "verbose",
    }


@pytest.mark.parametrize("text", sorted(text for text in CODE if text.startswith("gymq ")))
def test_every_command_of_gymq_on_the_page_exists_with_its_flags(gymq: Command, text: str) -> None:
    words = text.split()[1:]
    command = [word for word in words[:2] if re.fullmatch(r"[a-z][a-z-]*", word)]
    if words[0].startswith("--"):
        assert words[0] in gymq("--help").out
        return
    assert command[0] in all_commands()
    shown = gymq(*(command if command[0] in ("data", "ng") else command[:1]), "--help").out
    for flag in re.findall(r"--[a-z][a-z-]*", text):
        assert flag in shown, text
