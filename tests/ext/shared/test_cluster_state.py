"""What the processes of a cluster say of themselves is read however odd it is, and one bad answer costs itself."""

import json
from typing import Any

import pytest
from nats.aio.msg import Msg

from gymq.bus import Bus
from gymq.bus.discovery import find_workers
from gymq.ext.shared.cluster_state import read_workers

LISTED = {
    "name": "env",
    "id": "resources-1",
    "started": "2026-11-27T12:00:00Z",
    "metadata": {"kind": "resources", "implementation": "env"},
    "endpoints": [{"data": {"load": 1}, "num_requests": 1, "num_errors": 0}, {"name": "x"}],
}
FORGED: dict[str, Any] = {
    "no implementation": {"metadata": {"kind": "resources"}},
    "no endpoints": {"endpoints": []},
    "endpoints that are none": {"endpoints": 5},
    "no data": {"endpoints": [{}]},
    "a load that is a text": {"endpoints": [{"data": {"load": "x"}}]},
    "sessions that are a list": {"endpoints": [{"data": {"load": 1, "sessions": []}}]},
    "a start that is not a time": {"started": "x"},
    "a start without a zone": {"started": "2026-11-27T12:00:00"},
    "requests that are an object": {"endpoints": [{"data": {"load": 1}, "num_requests": {}}]},
}


@pytest.mark.parametrize("odd", FORGED)
async def test_an_odd_answer_hides_no_worker(own_bus: Bus, odd: str) -> None:
    answers = [json.dumps(LISTED).encode(), json.dumps(LISTED | {"id": "resources-2"} | FORGED[odd]).encode()]

    async def answer(message: Msg) -> None:
        for body in answers:
            await own_bus.publish(message.reply, body)

    await own_bus.subscribe("$SRV.STATS", answer)
    found = await find_workers(own_bus)
    assert {worker["metadata"]["implementation"] for worker in found} == {"env"}
    assert [worker.worker for worker in await read_workers(own_bus)] == ["resources-1"]
