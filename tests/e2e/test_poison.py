"""Junk on every subject that processes hear ends none of them, and the work that comes after it is done."""

import random
import re
from collections import defaultdict
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from nats.aio.msg import Msg

from gymq.bus import Bus
from gymq.cluster.launch import Cluster
from gymq.execution.services.profiler import last_profile
from gymq.protocol import subjects
from gymq.protocol.messages import VerifiedRollout
from tests.support.waiting import until_answer

from .running_cluster import RunningCluster, instances, row

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGES_A_SUBJECT = 100
SEED = 7


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCluster]:
    """A cluster whose streams may be spoilt."""
    folder = tmp_path_factory.mktemp("poisoned")
    wanted = [instance for instance in instances(folder) if instance.name in ("policy", "grader", "asker")]
    async with Cluster(wanted, folder=folder, ack_wait_s=30.0, drain_s=2.0) as cluster:
        bus = await Bus.connect(cluster.url, role="test", name="test")
        yield RunningCluster(cluster, bus, folder)
        await bus.close()


def mutated(body: bytes, source: random.Random) -> bytes:
    """A copy that is cut off, or has other bytes in some places."""
    if source.random() < 0.3:
        return body[: source.randrange(len(body) + 1)]
    copy = bytearray(body)
    for _ in range(source.randrange(1, 8)):
        copy[source.randrange(len(copy))] = source.randrange(256)
    return bytes(copy)


def filled(pattern: str, names: dict[str, str], source: random.Random) -> str:
    """A subject of a pattern, with names that exist or odd ones."""

    def name(match: re.Match[str]) -> str:
        odd = ("99999999999999999999", "0", "x" * 65, "\u00e4", "-1", "$", "all")
        return names.get(match[1], "0") if source.random() < 0.7 else source.choice(odd)

    return re.sub(r"<(\w+)>", name, pattern)


async def collect(cluster: RunningCluster, run: str, count: int) -> None:
    await cluster.submit(run, "asker", [row(script={"reward": 1.0}) for _ in range(count)])
    outcomes = await cluster.outcomes(run, count)
    assert [outcome for outcome in outcomes.values() if not isinstance(outcome, VerifiedRollout)] == []


async def counted(cluster: RunningCluster, run: str) -> int:
    """Rollouts in the live statistics of a run."""
    profile, _ = await last_profile(cluster.js, run)
    agents = profile.snapshot().agents
    return agents["asker"].rollouts if "asker" in agents else 0


async def test_junk_on_every_subject_costs_nothing_but_itself(own_cluster: RunningCluster, run: str) -> None:
    cluster, source = own_cluster, random.Random(SEED)
    heard: dict[str, list[bytes]] = defaultdict(list)
    workers: set[str] = set()

    async def hear(message: Msg) -> None:
        tokens = message.subject.split(".")
        heard[".".join(tokens[:2])].append(message.data)
        workers.update(tokens[2:3] if tokens[1:2] == ["session"] else ())

    hearing = await cluster.bus.subscribe("gym.>", hear)
    await cluster.bus.flush()
    await collect(cluster, f"{run}-before", 5)
    await cluster.bus.unsubscribe(hearing)
    assert len(heard) > 5
    real = [body for bodies in heard.values() for body in bodies if body]
    names = {"run": f"{run}-junk", "agent": "asker", "resources": "grader", "model": "policy"}
    names |= {"worker": next(iter(workers), "w"), "role": "resources", "source": "agent", "digest": "0" * 32}
    names |= {"session": "s", "push": "p", "id": "i"}
    patterns = [subject.pattern for subject in subjects.SUBJECTS if subject.pattern.startswith("gym.")]
    for pattern in [*patterns, "$SRV.STATS"]:
        own = [body for body in heard[".".join(pattern.split(".")[:2])] if body] or real
        for number in range(MESSAGES_A_SUBJECT):
            body = source.randbytes(source.randrange(200)) if number % 4 == 0 else mutated(source.choice(own), source)
            reply = f"_INBOX_test.any.junk.{number}" if number % 2 else ""
            await cluster.bus.publish(filled(pattern, names, source), body, reply=reply)
        await cluster.bus.flush(30.0)
    await collect(cluster, f"{run}-after", 10)

    await until_answer(lambda: counted(cluster, f"{run}-after"), lambda number: number == 10)
    assert {child.name: child.restarts for child in cluster.children if child.restarts} == {}
