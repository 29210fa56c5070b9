"""`python -m gymq.ext.mcp`: the tools of a server, ready for a row."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gymq import responses
from gymq.ext.mcp.__main__ import main

pytest.importorskip("mcp", reason='mcp is not installed: pip install "gymq[mcp]"')

BARE = Path(__file__).parents[3] / "workers" / "resources" / "mcp_tools" / "tests" / "bare_server.py"


def test_the_tools_of_all_pages_are_printed_as_a_row_takes_them() -> None:
    command = [sys.executable, "-m", "gymq.ext.mcp", "python", str(BARE)]
    tools = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert len(tools) == 8
    responses.validate_params({"input": "x", "tools": tools})


def test_help_is_no_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gymq.ext.mcp", "--help"])
    assert (main(), "python -m gymq.ext.mcp URL" in capsys.readouterr().out) == (0, True)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["no-such-program"], "there is no program 'no-such-program'"),
        (["python", "-c", "pass"], "the MCP server python cannot be used"),
        (["http://127.0.0.1:1/mcp"], "the MCP server http://127.0.0.1:1/mcp cannot be used"),
    ],
)
def test_a_server_that_cannot_be_asked_is_told_in_a_sentence(
    words: list[str], problem: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gymq.ext.mcp", *words])
    assert main() == 2
    printed = capfd.readouterr()
    assert problem in printed.err
    assert printed.out == ""
