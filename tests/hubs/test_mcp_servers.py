"""MCP servers of npm in a cluster: solutions win, mistakes do not, and killed workers change nothing."""

import json
import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gymq.protocol.instances import Instance
from tests.support import episodes
from tests.support.compatibility import record

VERSION = "2026.8.31"
PACKAGES = ("server-everything", "server-filesystem", "server-memory")
INSTALL_S, SLOW_S = 400.0, 300.0
Call = tuple[str, dict[str, Any]]

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GYMQ_REQUIRE_HUBS"), reason="needs packages of npm: make test-in NAME=hubs"),
    pytest.mark.timeout(1200),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the packages are."""
    place = tmp_path_factory.mktemp("npm")
    npm = shutil.which("npm")
    assert npm is not None, "npm is not installed here"
    wanted = [f"@modelcontextprotocol/{name}@{VERSION}" for name in PACKAGES]
    options = ["--prefix", str(place), "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run([npm, "install", *options, *wanted], check=True, timeout=INSTALL_S)
    return place / "node_modules" / "@modelcontextprotocol"


def observed(text: str) -> Call:
    return "add_observations", {"observations": [{"entityName": "Ann", "contents": [text]}]}


def edited(old: str, new: str) -> Call:
    return "edit_file", {"path": "a.txt", "edits": [{"oldText": old, "newText": new}]}


ANN = {"name": "Ann", "entityType": "person", "observations": ["keeps bees"]}
KNOWN = ["likes tea", "reads", "sings", "swims"]
GRAPH = {"entities": [{**ANN, "observations": ["keeps bees", *KNOWN]}], "relations": []}
STEPS = ["one", "two", "three", "four", "five"]
MEMORY, WRITTEN = ("create_entities", {"entities": [ANN]}), ("write_file", {"path": "a.txt", "content": "one\n"})

# Of each server its command, what solves the task, its last text, and what the verifier expects.
SERVERS: dict[str, tuple[str, list[Call], str, dict[str, Any]]] = {
    "server-memory": (
        'MEMORY_FILE_PATH="$PWD/memory.jsonl" exec node "$0"',
        [MEMORY, *[observed(text) for text in KNOWN]],
        "Done.",
        {"expected_state": [{"tool": "read_graph", "arguments": {}, "output": json.dumps(GRAPH, indent=2)}]},
    ),
    "server-filesystem": (
        'exec node "$0" "$PWD"',
        [WRITTEN, *[edited(old, new) for old, new in pairwise(STEPS)]],
        "Done.",
        {"expected_state": [{"tool": "read_text_file", "arguments": {"path": "a.txt"}, "output": "five\n"}]},
    ),
    "server-everything": (
        'exec node "$0"',
        [("get-sum", {"a": number, "b": number + 1}) for number in range(5)],
        "9",
        {"expected_answer": "9"},
    ),
}


def said(calls: list[Call], last: str) -> str:
    turns: list[Any] = [[{"call": {"name": name, "arguments": arguments}}] for name, arguments in calls]
    return json.dumps([*turns, [{"text": last}]])


@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_of_npm(name: str, folder: Path, tmp_path: Path) -> None:
    script, calls, last, expected = SERVERS[name]
    tools = [
        {"type": "function", "name": tool, "parameters": {"type": "object"}, "strict": False}
        for tool in sorted({tool for tool, _ in calls})
    ]
    metadata = {"simulated_solution": said(calls, last), "simulated_mistake": said(calls[:1], "I do not know.")}
    row = {"responses_create_params": {"input": "Solve it.", "tools": tools, "metadata": metadata}, **expected}
    command = ["sh", "-c", script, str(folder / name / "dist" / "index.js")]
    options = {"servers": {"it": {"command": command}}, "num_workers": 2}
    server = Instance("tools", "resources", "mcp_tools", options)
    solved = await episodes.played(
        tmp_path / "s", server, [row] * 4, skill=1.0, kill=True, agent="simple_agent", deadline_s=SLOW_S
    )
    failed = await episodes.played(
        tmp_path / "m", server, [row] * 4, skill=0.0, agent="simple_agent", deadline_s=SLOW_S
    )
    assert {outcome.reward for outcome in solved} == {1.0}
    assert {outcome.reward for outcome in failed} == {0.0}
    if name == list(SERVERS)[-1]:
        what = "3 servers in a cluster: solutions 1, mistakes 0, workers killed"
        record("MCP: servers as tools", f"{VERSION} of npm", "their packages, simulated_model", what)
