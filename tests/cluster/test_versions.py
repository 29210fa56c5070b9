"""Processes of several versions: those that meet work together, a newcomer that does not meet the others is refused."""

import json
import logging
import os
import signal
from importlib.metadata import version
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from gymq.bus import Bus
from gymq.bus.discovery import WorkerSearch, check_versions, is_running
from gymq.cluster.child import Child
from gymq.cluster.launch import Cluster, Deployment
from gymq.cluster.server import EmbeddedServer
from gymq.errors import BusError
from gymq.protocol.instances import Instance
from gymq.protocol.versions import SPOKEN, ProtocolRange
from tests.support.waiting import until, until_answer

AGENT = Instance(name="old", kind="agents", implementation="simple_agent")


async def answer_as(bus: Bus, kind: str = "agents", **protocol: str) -> None:
    """Answer as a process of gymq 9.9.9 that states a protocol, or none."""
    metadata = {"kind": kind, "implementation": "simple_agent", **protocol}

    async def answer(message: Msg) -> None:
        body = {"name": "old", "id": "agent-1", "version": "9.9.9", "metadata": metadata}
        await bus.publish(message.reply, json.dumps(body).encode())

    for subject in ("$SRV.PING", "$SRV.PING.old"):
        await bus.subscribe(subject, answer)
    await bus.flush()


@pytest.mark.parametrize(
    ("ours", "theirs", "meets"),
    [((1, 1), (1, 1), True), ((1, 2), (2, 3), True), ((2, 3), (1, 2), True), ((1, 1), (2, 3), False)],
)
def test_ranges_meet_where_both_speak_one_version(ours: tuple[int, int], theirs: tuple[int, int], meets: bool) -> None:
    assert ProtocolRange(*ours).meets(ProtocolRange(*theirs)) is meets
    assert ProtocolRange(*theirs).meets(ProtocolRange(*ours)) is meets


@pytest.mark.parametrize("newest", ["-1", "x", "9" * 400])
def test_a_range_that_cannot_be_read_counts_as_none(newest: str) -> None:
    assert ProtocolRange.read({"protocol_oldest": "0", "protocol_newest": newest}) == ProtocolRange()
    assert not ProtocolRange().meets(SPOKEN)


async def test_a_later_version_that_still_speaks_ours_is_joined(own_bus: Bus) -> None:
    await answer_as(own_bus, **ProtocolRange(SPOKEN.newest, SPOKEN.newest + 3).stated(), later="field")
    await check_versions(own_bus)
    assert await is_running(own_bus, "old", "agents")


@pytest.mark.parametrize("oldest", [None, SPOKEN.newest + 1])
async def test_a_newcomer_that_does_not_meet_the_cluster_is_refused_in_one_sentence(
    own_server: EmbeddedServer, own_bus: Bus, tmp_path: Path, oldest: int | None
) -> None:
    theirs = ProtocolRange() if oldest is None else ProtocolRange(oldest, oldest)
    await answer_as(own_bus, **({} if oldest is None else theirs.stated()))
    sentence = f"this is gymq {version('gymq')} with {SPOKEN}, but old of the cluster is gymq 9.9.9 with {theirs};"
    with pytest.raises(BusError, match=sentence):
        async with Cluster([AGENT], folder=tmp_path, deployment=Deployment(own_server.url)):
            pass
    with pytest.raises(BusError, match=sentence):
        await is_running(own_bus, "old", "agents")


async def test_the_services_state_their_versions_and_count_when_others_join(
    own_server: EmbeddedServer, own_bus: Bus, tmp_path: Path
) -> None:
    async with Cluster([], folder=tmp_path, deployment=Deployment(own_server.url)):
        with WorkerSearch(own_bus, verb="INFO") as search:
            (found,) = await until_answer(lambda: search.ask(0.5), bool)
    assert found["metadata"] == {"kind": "services", "implementation": "gymq", **SPOKEN.stated()}
    await answer_as(own_bus, "services")
    with pytest.raises(BusError, match=r"old of the cluster is gymq 9\.9\.9"):
        await check_versions(own_bus)


async def test_a_process_that_is_started_again_checks_the_versions_of_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = Instance(name="env", kind="resources", implementation="mcqa", options={"domain": "other"})
    async with Cluster([env], folder=tmp_path) as cluster:
        (child,) = (child for child in cluster.children if child.name == "resources")
        assert isinstance(child, Child)
        assert child.process is not None
        async with await Bus.connect(cluster.url, role="agent", name="old") as bus:
            await answer_as(bus)
            with caplog.at_level(logging.ERROR, "gymq.launch"):
                os.kill(child.process.pid, signal.SIGKILL)
                await until(lambda: f"resources: this is gymq {version('gymq')} with {SPOKEN}, but old" in caplog.text)
            assert cluster.not_serving == ["resources"]
        await until(lambda: not cluster.not_serving)
