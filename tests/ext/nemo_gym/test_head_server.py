"""What callers read from the head server."""

import json
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from gymq.ext.nemo_gym.directory import InstanceAddress, config_body
from tests.support.engine import Body
from tests.support.world import Client, World

ODD_NAMES = {
    "with \"quotes\" and 'quotes'": 1,
    "umlaut ä, kanji 漢, emoji \U0001f600": "\U0001f600 ä",
    "colon: here": {"- dash": ["#", "a: b", "yes", "1e3", "~", "line\nbreak", ""]},
    "x" * 300: None,
}


def as_json_then_yaml(body: bytes) -> Body:
    """The reader of Gym's own client."""
    read: Any = OmegaConf.to_container(OmegaConf.create(json.loads(body)), resolve=True)
    assert isinstance(read, dict)
    return read


def as_yaml_twice(body: bytes) -> Body:
    """The reader of the TRL script."""
    read: Body = yaml.safe_load(yaml.safe_load(body.decode()))
    return read


@pytest.mark.parametrize("read", [as_json_then_yaml, as_yaml_twice])
def test_a_config_body_means_the_same_to_both_readers(read) -> None:
    body = config_body(ODD_NAMES)
    assert body.isascii()
    assert read(body) == ODD_NAMES


def test_the_url_of_an_instance_has_brackets_around_an_address_of_ipv6() -> None:
    place = InstanceAddress("asker", "agents", "simple_agent", "::1", 11001, {})
    assert place.url == "http://[::1]:11001"


async def test_the_head_server_answers_with_one_json_string(client: Client, world: World) -> None:
    async with client.session.get(f"{world.head}/global_config_dict_yaml") as answer:
        body = await answer.read()
        assert answer.content_type == "application/json"
    assert isinstance(json.loads(body), str)
    assert as_json_then_yaml(body) == as_yaml_twice(body)


async def test_every_instance_has_one_kind_and_one_implementation_with_its_address(
    client: Client, world: World
) -> None:
    async with client.session.get(f"{world.head}/global_config_dict_yaml") as answer:
        tree = as_json_then_yaml(await answer.read())
    names = {world.name(name) for name in ("policy", "grader", "counter", "asker", "adder")}
    assert names <= tree.keys()
    for name in names:
        ((kind, implementations),) = tree[name].items()
        ((_, options),) = implementations.items()
        assert kind in ("responses_api_agents", "responses_api_models", "resources_servers")
        assert (await client.session.get(f"http://{options['host']}:{options['port']}/")).status == 200
    assert tree["head_server"] == {"host": "127.0.0.1", "port": int(world.head.rpartition(":")[2])}


async def test_no_option_of_a_worker_is_told(client: Client, world: World) -> None:
    async with client.session.get(f"{world.head}/global_config_dict_yaml") as answer:
        assert "sk-a-key-for-tests" not in await answer.text()
