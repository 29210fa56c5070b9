"""The bridge of the commands: of workers that are configured, or of those that run."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import gymq.ext.nemo_gym
from gymq.config import Config
from gymq.errors import UsageError
from gymq.ext.nemo_gym.command import bridge
from gymq.ext.nemo_gym.interface import check, serve
from tests.support.ports import free_port
from tests.support.world import World, new_client

ROW = {
    "responses_create_params": {"input": "A or B?"},
    "options": [{"A": "x"}, {"B": "y"}],
    "expected_answer": "B",
}


async def test_without_a_configuration_the_workers_that_run_are_served(world: World, tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    config = Config({"bridge": {"port": port, "name": world.name("found")}}, [])
    async with serve(config, world.url, tmp_path) as address:
        assert address.viewer_url == f"http://127.0.0.1:{port}/ui/"
        world.head = f"http://127.0.0.1:{port}"
        async with new_client(world) as client:
            assert (await client.result(world.row()))["reward"] == 1.0
            async with client.session.get(f"{world.head}/server_instances") as answer:
                names = {entry["process_name"] for entry in await answer.json()}
    assert {world.name("policy"), world.name("asker"), world.name("grader")} <= names


@pytest.mark.parametrize(
    "given", [{"bridge": 3}, {"bridge": {"prot": 1}}, {"bridge": {"port": 0}}, {"bridge": {"heartbeat_s": -1}}]
)
def test_settings_that_do_not_do_are_refused_in_one_sentence(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="bridge"):
        check(Config(given, []))


def test_the_folder_of_the_drop_in_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert bridge(drop_in=True) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert (folder / "nemo_gym" / "cli.py").is_file()
    assert folder.is_relative_to(Path(gymq.ext.nemo_gym.__file__).parent)


async def test_gymq_up_serves_http_where_it_is_configured_and_gymq_bridge_beside_it(tmp_path: Path) -> None:
    port, other = free_port("127.0.0.1"), free_port("127.0.0.1")
    config = tmp_path / "config.yaml"
    files = ["workers/resources/mcqa/config.yaml", "workers/models/simulated_model/config.yaml"]
    config.write_text(json.dumps({"config_paths": files, "bridge": {"port": port, "on_untrainable": "allow"}}))

    async def start(*arguments: str) -> asyncio.subprocess.Process:
        code = "from gymq.cli import main; main()"
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, *arguments), cwd=tmp_path, stdout=asyncio.subprocess.PIPE
        )

    up = await start("up", "--config", str(config))
    assert up.stdout is not None
    assert f"viewer: http://127.0.0.1:{port}/ui/\n" in (await up.stdout.readline()).decode()
    beside = await start("bridge", f"--port={other}", "++bridge.on_untrainable=allow")
    assert beside.stdout is not None
    assert (
        f"3 instances over HTTP at http://127.0.0.1:{other}; viewer: http://127.0.0.1:{other}/ui/"
        in (await beside.stdout.readline()).decode()
    )
    async with aiohttp.ClientSession() as session:
        for at in (port, other):
            async with session.post(f"http://127.0.0.1:{at}/run", json=ROW) as answer:
                assert answer.status == 200
                assert (await answer.json())["expected_answer"] == "B"
    for process in (beside, up):
        os.kill(process.pid, signal.SIGTERM)
        assert await process.wait() == 0
