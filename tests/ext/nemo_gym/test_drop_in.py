"""Programs made for NeMo Gym start, use and stop gymq under the names that they know."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import gymq.ext.nemo_gym
from gymq.ext.nemo_gym.child_cluster import ChildCluster
from gymq.ext.nemo_gym.directory import InstanceAddress
from tests.support.ports import free_port
from tests.support.world import Client, World

EXAMPLE = json.loads(Path("workers/resources/mcqa/data/example.jsonl").read_text().splitlines()[0])
DROP_IN = Path(gymq.ext.nemo_gym.__file__).parent / "drop_in"


@pytest.fixture
def drop_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(DROP_IN))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "nemo_gym"]:
        del sys.modules[name]


def config(port: int) -> Any:
    return OmegaConf.create(
        {
            "config_paths": [
                "workers/resources/mcqa/config.yaml",
                "workers/models/simulated_model/config.yaml",
            ],
            "policy_model": {"responses_api_models": {"simulated_model": {"token_ids": True}}},
            "policy_base_url": ["http://127.0.0.1:1/v1"],
            "policy_api_key": "dummy_key",
            "default_host": "127.0.0.1",
            "head_server": {"host": "0.0.0.0", "port": port},
            "unknown_key": 3,
        }
    )


async def test_a_trainer_starts_uses_looks_after_and_stops_us_under_the_names_it_knows(drop_in: None) -> None:
    from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper
    from nemo_gym.rollout_collection import RolloutCollectionHelper
    from nemo_gym.server_utils import HEAD_SERVER_KEY_NAME, BaseServerConfig

    assert HEAD_SERVER_KEY_NAME == "head_server"
    port = free_port("127.0.0.1")
    helper = RunHelper()
    parser_config = GlobalConfigDictParserConfig(
        dotenv_path=None, initial_global_config_dict=config(port), skip_load_from_cli=True
    )
    await asyncio.to_thread(helper.start, global_config_dict_parser_config=parser_config)
    try:
        await asyncio.to_thread(helper.poll)
        rows = [{**EXAMPLE, "_rowidx": number} for number in range(3)]
        head = BaseServerConfig(host="0.0.0.0", port=port)
        found = RolloutCollectionHelper().run_examples(examples=rows, head_server_config=head)
        assert sorted([(await awaitable)[0]["_rowidx"] for awaitable in found]) == [0, 1, 2]
    finally:
        await asyncio.to_thread(helper.shutdown)
        await asyncio.to_thread(helper.shutdown)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))


def test_a_trainer_is_told_what_has_died(drop_in: None) -> None:
    from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper

    helper = RunHelper()
    helper.start(GlobalConfigDictParserConfig(initial_global_config_dict=config(free_port("127.0.0.1"))))
    try:
        process = helper._cluster._process
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with pytest.raises(RuntimeError, match="gymq up"):
            helper.poll()
    finally:
        helper.shutdown()


def test_a_configuration_that_does_not_do_is_told(drop_in: None) -> None:
    from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper

    wrong = OmegaConf.create({"config_paths": ["no/such/file.yaml"]})
    with pytest.raises(RuntimeError, match=r"no/such/file\.yaml"):
        RunHelper().start(GlobalConfigDictParserConfig(initial_global_config_dict=wrong))


def test_nothing_was_started_in_this_process(drop_in: None) -> None:
    from nemo_gym.cli import RunHelper

    with pytest.raises(RuntimeError, match="start"):
        RunHelper().poll()


async def test_an_instance_that_nobody_serves_is_named(client: Client, world: World) -> None:
    assert world.bridge is not None
    cluster = ChildCluster({"head_server": {"port": int(world.head.rpartition(":")[2])}})
    cluster._process = await asyncio.to_thread(_sleeper)
    try:
        await asyncio.to_thread(cluster.check)
        directory = world.bridge._context.directory
        directory._by_name["gone"] = InstanceAddress("gone", "resources", "x", "127.0.0.1", 1, {})
        with pytest.raises(RuntimeError, match="resources_servers gone"):
            await asyncio.to_thread(cluster.check)
    finally:
        await asyncio.to_thread(cluster.stop)


def _sleeper() -> Any:
    """A process that only lives."""
    import subprocess

    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
