"""`gymq up --only`: the parts of a cluster as processes of their own, each reporting whether it serves."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import psutil
import pytest

from gymq.cluster.server import EmbeddedServer
from tests.support.ports import free_port
from tests.support.waiting import until_answer

from .conftest import Command

CONFIG = """
config_paths:
  - workers/resources/mcqa/config.yaml
  - workers/models/simulated_model/config.yaml
policy_model: {responses_api_models: {simulated_model: {}}}
"""
MODEL_ALONE = "config_paths: [workers/models/simulated_model/config.yaml]"
ROW = {
    "responses_create_params": {"input": "A or B?"},
    "options": [{"A": "x"}, {"B": "y"}],
    "expected_answer": "B",
    "agent_ref": {"type": "responses_api_agents", "name": "mcqa_simple_agent"},
}
PATIENCE_S = 600.0


class Parts:
    """Commands in a folder with a configuration."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.started: list[asyncio.subprocess.Process] = []

    async def run(self, *arguments: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", "from gymq.cli import main; main()", *arguments),
            cwd=self._folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.started.append(process)
        return process

    async def up(self, *arguments: str) -> asyncio.subprocess.Process:
        """A part of the cluster that serves."""
        process = await self.run("up", "--config", "config.yaml", "--log-to", "stderr", *arguments)
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            assert b"Ctrl-C" in await process.stdout.readline()
        return process


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    (tmp_path / "config.yaml").write_text(CONFIG)
    made = Parts(tmp_path)
    yield made
    for process in made.started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def stopped(process: asyncio.subprocess.Process) -> bytes:
    """Stop a command as `kill` does, and return the rest of what it printed."""
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_S):
        printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed


async def health(port: int, host: str = "127.0.0.1") -> tuple[int, list[str]]:
    async with aiohttp.ClientSession() as http, http.get(f"http://{host}:{port}/health") as response:
        return response.status, (await response.json())["not_serving"]


async def test_a_cluster_of_parts_does_what_a_whole_one_does(
    parts: Parts, own_server: EmbeddedServer, tmp_path: Path
) -> None:
    nats = ("--nats", own_server.url)
    await parts.up(*nats, "--only", "services")
    await parts.up(*nats, "--only", "resources", "--only", "models")
    agents = await parts.up(*nats, "--only", "agents")
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    collect = await parts.run("collect", *nats, "--rows", "rows.jsonl", "--output", "out.jsonl", "--num-repeats", "2")
    async with asyncio.timeout(PATIENCE_S):
        await collect.wait()
    assert collect.returncode == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2
    assert not (tmp_path / ".gymq" / "logs").exists()
    assert b"gymq view" not in await stopped(agents)  # `gymq view` finds no server in that folder


@pytest.mark.nightly
async def test_a_whole_cluster_names_the_command_that_shows_its_runs(parts: Parts) -> None:
    cluster = await parts.up()
    assert "gymq view, in this folder, shows runs and rollouts in a browser" in (await stopped(cluster)).decode()


@pytest.mark.nightly
async def test_with_a_bridge_its_viewer_is_named(parts: Parts, tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    (tmp_path / "config.yaml").write_text(f"{CONFIG}bridge: {{port: {port}}}\n")
    cluster = await parts.run("up", "--config", "config.yaml")
    assert cluster.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        assert f"viewer: http://127.0.0.1:{port}/ui/".encode() in await cluster.stdout.readline()
        assert b"Ctrl-C" in await cluster.stdout.readline()
    assert b"gymq view" not in await stopped(cluster)


async def test_health_names_the_process_that_died_until_it_is_back(parts: Parts, own_server: EmbeddedServer) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    process = await parts.up("--nats", own_server.url, "--only", "models", "--health-port", str(port))
    assert await health(port) == (200, [])
    with pytest.raises(aiohttp.ClientConnectionError):  # what listens on all addresses answers here too
        await health(port, "127.0.0.2")
    psutil.Process(process.pid).children()[0].kill()
    assert await until_answer(lambda: health(port), lambda answer: answer != (200, [])) == (503, ["models"])
    await until_answer(lambda: health(port), lambda answer: answer == (200, []))


@pytest.mark.parametrize(
    ("config", "options", "said"),
    [
        (CONFIG, [], "--only needs --nats URL"),
        (MODEL_ALONE, ["--nats", "nats://127.0.0.1:9"], "describes no agents"),
    ],
)
def test_a_part_needs_a_server_that_the_others_find_and_a_configuration(
    gymq: Command, here: Path, config: str, options: list[str], said: str
) -> None:
    (here / "config.yaml").write_text(config)
    refused = gymq("up", "--config", "config.yaml", "--only", "agents", *options)
    assert refused.status == 2
    assert said in refused.err
