"""What every release sent and stored can be read, and its runs are finished."""

from collections import Counter
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

from gymq.bus import Bus
from gymq.bus.queue.steering import read_steering
from gymq.cluster.launch import Cluster, Deployment
from gymq.cluster.server import EmbeddedServer
from gymq.execution.services.profiler import last_profile
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import VerifiedRollout
from tests.protocol.builders import MESSAGE_TYPES
from tests.support.waiting import until_answer

from .recording import HERE, NUM_TASKS, RUN, dead_letters, instances, outcomes

RELEASES = sorted(path.parent for path in HERE.glob("*/streams.msgpack"))

decode_any = Decoder(*MESSAGE_TYPES)


def test_this_release_is_recorded() -> None:
    assert HERE / version("gymq") in RELEASES, "python -m tests.releases.recording"


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_each_message_of_a_release_is_read_whole(release: Path) -> None:
    for tag, body in msgspec.msgpack.decode((release / "messages.msgpack").read_bytes()).items():
        read_again = msgspec.msgpack.decode(encode(decode_any(body)))
        assert read_again == msgspec.msgpack.decode(body), tag


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
async def test_a_run_in_the_streams_of_a_release_is_finished(
    release: Path, own_server: EmbeddedServer, tmp_path: Path
) -> None:
    bus = await Bus.connect(own_server.url, role="test", name="test")
    for stored in msgspec.msgpack.decode((release / "streams.msgpack").read_bytes()).values():
        for subject, body in stored:
            await bus.js.store(subject, body)
    before = await outcomes(bus)
    assert len(before) == NUM_TASKS // 2
    async with Cluster(instances(tmp_path), folder=tmp_path, deployment=Deployment(own_server.url)):
        after = await until_answer(lambda: outcomes(bus), lambda found: len(found) == NUM_TASKS)
        assert {number: after[number] for number in before} == before
        assert all(isinstance(found, VerifiedRollout) and found.reward == 1.0 for _, found in after.values())
        unfinished = {f"{RUN}/{number}/0": 1 for number in after if number not in before}
        assert Counter((tmp_path / "calls").read_text().split()) == unfinished, "the journals are read"
        await until_answer(lambda: last_profile(bus.js, RUN), lambda found: found[1] == NUM_TASKS)
    (letter,) = await dead_letters(bus)
    assert letter.letter.body == b"not a task"
    steering = await read_steering(bus, RUN)
    assert steering is not None
    assert steering.share == 2.0
    await bus.close()
