"""Environments of other libraries in a cluster: solutions win, mistakes do not, and killed workers change nothing."""

import asyncio
import importlib.metadata
import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from gymq.workers.resources.textarena import worker as textarena_worker

from gymq.protocol.instances import Instance
from tests.support import episodes
from tests.support.compatibility import record
from tests.support.ports import free_port
from tests.support.waiting import until_answer

START_S = 400.0  # OpenEnv imports much

SERVER = Path(__file__).with_name("openenv_server.py")
EXAMPLES = Path(textarena_worker.__file__).parent / "data" / "example.jsonl"


@asynccontextmanager
async def served(name: str, folder: Path) -> AsyncIterator[str]:
    """The address of a server of OpenEnv in a process of its own."""
    port = free_port("127.0.0.1")
    command = [sys.executable, str(SERVER), name, str(port)]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)})
    url = f"http://127.0.0.1:{port}"

    async def answers() -> bool:
        assert process.returncode is None, f"the server of {name} ended"
        try:
            async with aiohttp.ClientSession() as http, http.get(f"{url}/health") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    try:
        await until_answer(answers, deadline_s=START_S)
        yield url
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def search(hidden: int) -> list[str]:
    low, high = 1, 100
    guesses: list[str] = []
    while not guesses or int(guesses[-1]) != hidden:
        guesses.append(str((low + high) // 2))
        low, high = (int(guesses[-1]) + 1, high) if int(guesses[-1]) < hidden else (low, int(guesses[-1]) - 1)
    return guesses


def hidden(seed: int) -> int:
    """What `openenv_server.py` draws."""
    return random.Random(seed).randint(1, 100)


# Of each environment the options, the rows, and the rewards of solution and mistake.
LAKE = (["[right]"] * 3 + ["[down]"] * 3, ["[right]", "[down]"])
# Games of many turns: workers are killed while all of them run.
NUMBERS = {seed: guesses for seed in range(8) if len(guesses := search(hidden(seed))) == 7}
SERVED: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[float], float]] = {
    "hidden_number": (
        {"action_field": "number", "observation_field": "text"},
        [episodes.row(guesses, ["x", "101"], reset={"seed": seed}) for seed, guesses in NUMBERS.items()],
        [1.0 - 0.01 * (len(guesses) - 1) for guesses in NUMBERS.values()],
        0.0,
    ),
    "frozen_lake": (
        {"observation_field": "text"},
        [episodes.row(*LAKE, reset={"seed": 5}) for _ in range(4)],
        [1.0] * 4,
        0.34,
    ),
    "echo_env": ({}, [episodes.row(["a" * 10] * 5, [""] * 5) for _ in range(4)], [5.0] * 4, 0.0),
}


@pytest.mark.parametrize("name", SERVED)
async def test_environments_of_openenv(name: str, tmp_path: Path) -> None:
    if name == "echo_env":
        command = str(Path(sys.executable).with_name("openenv"))
        init = await asyncio.create_subprocess_exec(command, "init", name, cwd=tmp_path, stdout=subprocess.DEVNULL)
        assert await init.wait() == 0
    options, rows, won, most_of_mistake = SERVED[name]
    max_steps = 5 if name == "echo_env" else 12
    async with served(name, tmp_path) as url:
        instance = Instance("served", "resources", "openenv", {"base_url": url, "num_workers": 2, **options})
        solved = await episodes.played(tmp_path / "s", instance, rows, skill=1.0, kill=True, max_steps=max_steps)
        failed = await episodes.played(tmp_path / "m", instance, rows, skill=0.0, max_steps=max_steps)
    assert [outcome.reward for outcome in solved] == pytest.approx(won)
    assert {outcome.attempt for outcome in solved} == {0}  # rebuilt, and none started over
    assert max(outcome.reward for outcome in failed) <= most_of_mistake
    if name == list(SERVED)[-1]:
        version = f"openenv-core {importlib.metadata.version('openenv-core')}"
        what = f"{len(SERVED)} environments in a cluster: solutions win, mistakes do not, workers killed"
        record("OpenEnv: environments", version, "servers made with its package, simulated_model", what)


def calls(*actions: tuple[str, dict[str, Any]]) -> str:
    """Return what the simulated model says: a call in each turn, then a text."""
    made = [[{"call": {"name": name, "arguments": arguments}}] for name, arguments in actions]
    return json.dumps([*made, [{"text": "Done."}]])


def called(solution: list[tuple[str, dict[str, Any]]], mistake: list[tuple[str, dict[str, Any]]], seed: int) -> Any:
    """Return a row that offers the tools it calls."""
    tools = [
        {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False}
        for name in sorted({name for name, _ in solution})
    ]
    metadata = {"simulated_solution": calls(*solution), "simulated_mistake": calls(*mistake)}
    params = {"input": "Play.", "tools": tools, "metadata": metadata}
    return {"responses_create_params": params, "reset": {"seed": seed}}


# By their classes, as configurations of NeMo Gym name them: options, rows, rewards of solutions, most of a mistake.
CLASSES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[float], float]] = {
    "HiddenNumber": (
        {"action_class": "tests.hubs.openenv_server.Guess"},
        [
            called([("step", {"number": guess}) for guess in guesses], [("step", {"number": "x"})], seed)
            for seed, guesses in NUMBERS.items()
        ],
        SERVED["hidden_number"][2],
        0.0,
    ),
    "Secrets": (
        {"action_class": "openenv.core.env_server.mcp_types.CallToolAction", "is_mcp": True},
        [
            called([*[("look", {})] * 4, ("unlock", {"key": hidden(seed)})], [("unlock", {"key": 0})], seed)
            for seed in range(4)
        ],
        [1.0] * 4,
        0.0,
    ),
}


@pytest.mark.parametrize("name", CLASSES)
async def test_environments_of_openenv_by_their_classes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    options, rows, won, most_of_mistake = CLASSES[name]
    place = {"env_class": f"tests.hubs.openenv_server.{name}", "num_workers": 2, **options}
    instance = Instance("here", "resources", "openenv", place)
    solved = await episodes.played(
        tmp_path / "s", instance, rows, skill=1.0, kill=True, agent="simple_agent", deadline_s=START_S
    )
    failed = await episodes.played(tmp_path / "m", instance, rows, skill=0.0, agent="simple_agent", deadline_s=START_S)
    assert [outcome.reward for outcome in solved] == pytest.approx(won)
    assert {outcome.attempt for outcome in solved} == {0}
    assert max(outcome.reward for outcome in failed) <= most_of_mistake


async def test_games_of_textarena(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()] * 2
    instance = Instance("games", "resources", "textarena", {"num_workers": 2})
    solved = await episodes.played(tmp_path / "s", instance, rows, skill=1.0, kill=True)
    failed = await episodes.played(tmp_path / "m", instance, rows, skill=0.0, max_steps=25)
    assert [(outcome.reward, outcome.attempt) for outcome in solved] == [(1.0, 0)] * len(rows)
    assert max(outcome.reward for outcome in failed) < 0.5
    games = len({row["game"] for row in rows})
    what = f"{games} games in a cluster: solutions 1, mistakes less than 0.5, workers killed"
    record("TextArena: games", importlib.metadata.version("textarena"), "its package, simulated_model", what)


async def test_a_worker_with_a_python_of_its_own_plays_them_too(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]
    solved = await episodes.played(
        tmp_path, Instance("games", "resources", "textarena", {"isolated": True}), rows, skill=1.0
    )
    assert {outcome.reward for outcome in solved} == {1.0}
