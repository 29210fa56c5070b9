"""The configuration suite notices addresses that cannot be used."""

from collections.abc import Callable
from typing import Any

import pytest

from gymq.ext.nemo_gym import addresses
from tests.conformance.cases import OWN_CASES, CoreCase, read_file
from tests.conformance.comparison import Mismatch
from tests.conformance.core import check_core
from tests.conformance.suites import config

BASIC = next(case for case in read_file(OWN_CASES / "core_config.jsonl").cases if case.id == "cf-basic")


async def differences(monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], None]) -> str:
    original = addresses.add_addresses

    def changed(tree: dict[str, Any], **_: Any) -> dict[str, Any]:
        answer = original(tree, is_free=lambda _port: True)
        change(answer)
        return answer

    monkeypatch.setattr(addresses, "add_addresses", changed)
    assert isinstance(BASIC, CoreCase)
    with pytest.raises(Mismatch) as caught:
        await check_core(config, BASIC)
    return str(caught.value)


def options(tree: dict[str, Any]) -> dict[str, Any]:
    return tree["env_a"]["resources_servers"]["env_a"]


@pytest.mark.parametrize("port", [11000, 10000, 20001])
async def test_a_port_that_is_taken_or_out_of_range_differs(monkeypatch, port):
    found = await differences(monkeypatch, lambda tree: options(tree).update(port=port))
    assert "not distinct free ports" in found


async def test_a_port_given_twice_differs(monkeypatch):
    def same_port(tree: dict[str, Any]) -> None:
        tree["policy_model"]["responses_api_models"]["vllm_model"]["port"] = options(tree)["port"]

    assert "not distinct free ports" in await differences(monkeypatch, same_port)


async def test_another_host_differs(monkeypatch):
    found = await differences(monkeypatch, lambda tree: options(tree).update(host="0.0.0.0"))
    assert "env_a.host" in found


async def test_an_option_left_over_differs(monkeypatch):
    found = await differences(monkeypatch, lambda tree: options(tree).update(depht=4))
    assert "env_a.depht: not expected" in found
