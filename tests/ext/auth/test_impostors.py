"""What a worker that was broken into can do with what its role allows: nothing in the place of another role.

Each test acts with the password of one role against a server with roles, and hears all that this role may hear.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from nats.aio.msg import Msg

from gymq.bus import Bus, discovery
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.queue.tasks import read_task
from gymq.bus.rpc import tries
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.serving import Server
from gymq.ext.auth.roles import ROLES
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import (
    BlobRef,
    Cancel,
    Generate,
    Generated,
    Message,
    Seeded,
    Task,
    ToolResult,
    Verified,
    VerifiedRollout,
    Verify,
)
from tests.support.waiting import until

from .conftest import RawClients, RoleServer

FORGED = [Generated(response={"forged": True}), Verified(reward=1.0), ToolResult(output="forged"), Seeded(session=None)]
WORKERS = ["agent", "model", "resources", "services"]

decode_call = Decoder(Generate, Verify, BlobRef)

Connect = Callable[[str], Awaitable[Bus]]


@pytest.fixture(autouse=True)
def quick_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller asks sooner than it would whether its worker lives, which these tests wait for."""
    monkeypatch.setattr(tries, "PROBE_EVERY_S", 0.05)


@pytest.fixture
async def connect(role_server: RoleServer) -> AsyncIterator[Connect]:
    """A connection of gymq's own in a role."""
    connected = []

    async def new(name: str) -> Bus:
        connected.append(await Bus.connect(role_server.url_of(name), role=name, name="test"))
        return connected[-1]

    yield new
    for bus in connected:
        await bus.close()


class Honest:
    """A worker that accepts a call at once, and answers when it may."""

    def __init__(self, bus: Bus, subject: str, group: str, answer: Message) -> None:
        self._bus = bus
        self._subject = subject
        self._group = group
        self._answer = answer
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled = False

    async def start(self, worker: str) -> None:
        server = Server(self._bus, worker)
        await server.start()
        await server.serve("honest", self._subject, decode_call, self._respond, group=self._group, limit=1)
        await self._bus.flush()

    async def _respond(self, _subject: str, _request: object) -> Message:
        self.started.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return self._answer


def strings(value: Any) -> set[str]:
    """Every text in a message."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        return strings(list(value.keys())) | strings(list(value.values()))
    return set().union(*map(strings, value)) if isinstance(value, list) else set()


REQUESTS = {
    "model": (Generate(rollout="r", timeout_s=60, session="s", params={}), Generated(response={"honest": True})),
    "resources": (Verify(rollout="r", timeout_s=60, number=1, row=b"{}", response={}), Verified(reward=0.0)),
}


@pytest.mark.parametrize(
    ("attacker", "victim"),
    [(attacker, victim) for victim in ("model", "resources") for attacker in WORKERS if attacker != victim],
)
async def test_a_role_cannot_answer_in_the_place_of_another(
    connect: Connect, raw: RawClients, run: str, attacker: str, victim: str
) -> None:
    subject = f"gym.model.{run}" if victim == "model" else f"gym.resources.{run}"
    request, honest_answer = REQUESTS[victim]
    honest = Honest(await connect(victim), subject, victim, honest_answer)
    await honest.start(run)
    caller = await connect("agent")
    impostor = await raw.connect(attacker)
    heard: list[Msg] = []
    for allowed in next(role for role in ROLES if role.name == attacker).subscribe:
        name, _, group = allowed.partition(" ")
        if not name.startswith(subjects.INBOX_PREFIX):  # callers of one role hear each other's replies
            await impostor.hears(name, group, heard)
    operator = await raw.connect("operator")
    pings = await operator.hears(f"gym.ping.{victim}.{run}")
    requests = await operator.hears(subject)

    call = asyncio.create_task(Calls(caller).call(subject, request))
    await honest.started.wait()
    await until(lambda: pings)
    (asked,) = requests
    strings_seen = {message.reply for message in heard} | {message.subject for message in heard}
    for message in (*heard, *pings):
        if message.data:
            strings_seen |= strings(msgspec.msgpack.decode(message.data, strict=False))
    assert asked.reply not in strings_seen, "what travels names the pending reply"
    assert pings[0].data, "or it would prove little"
    assert not any(message.subject.startswith(f"gym.ping.{victim}") for message in heard)
    # Even with the reply subject, and with each place that anybody could mistake for it.
    for forged in FORGED:
        assert not await impostor.may_publish(asked.reply, encode(forged))
    honest.go.set()
    assert await call == honest_answer


@pytest.mark.parametrize("attacker", ["client", "model", "services"])
async def test_a_role_cannot_cancel_the_calls_of_others_with_what_it_hears(
    connect: Connect, raw: RawClients, run: str, attacker: str
) -> None:
    request, honest_answer = REQUESTS["resources"]
    honest = Honest(await connect("resources"), f"gym.resources.{run}", "resources", honest_answer)
    await honest.start(run)
    impostor = await raw.connect(attacker)
    operator = await raw.connect("operator")
    pings = await operator.hears(f"gym.ping.resources.{run}")
    call = asyncio.create_task(Calls(await connect("agent")).call(f"gym.resources.{run}", request))
    await until(lambda: pings)
    (pending,) = msgspec.msgpack.decode(pings[0].data)["calls"]
    assert not await impostor.may_publish(f"gym.cancel.resources.{run}", encode(Cancel(call=pending)))
    honest.go.set()
    assert await call == honest_answer
    assert not honest.cancelled


async def test_a_forged_acknowledgement_is_denied(connect: Connect, raw: RawClients, run: str) -> None:
    """A worker that says that the server has stored a rollout would lose it."""
    agent = await connect("agent")
    operator = await raw.connect("operator")
    stored = await operator.hears(f"gym.rollouts.{run}.0.0")
    ack = await agent.js.store(f"gym.rollouts.{run}.0.0", b"x")
    assert ack.seq > 0
    await until(lambda: stored)
    (message,) = stored
    for name in WORKERS:
        impostor = await raw.connect(name)
        assert not await impostor.may_publish(message.reply, b'{"stream": "ROLLOUTS", "seq": 1}')


def identity(name: str, kind: str) -> bytes:
    return msgspec.json.encode({"name": name, "id": "w", "metadata": {"kind": kind, "implementation": "forged"}})


async def test_a_verifier_cannot_pose_as_an_agent_or_a_model(connect: Connect, raw: RawClients, run: str) -> None:
    impostor = await connect("resources")

    async def lie(message: Msg) -> None:
        for kind in ("agents", "models", "services", "resources"):
            await impostor.publish(message.reply, identity(f"{run}-{kind}", kind))

    await impostor.subscribe("$SRV.>", lie)
    await impostor.flush()
    client = await connect("client")
    found = await discovery.find_workers(client, wait_s=1.0)
    assert {worker["name"] for worker in found} <= {f"{run}-resources"}
    assert not await discovery.is_running(client, f"{run}-agents", "agents", patience_s=0.0)


# What is stored -------------------------------------------------------------------------------------------------------


async def test_a_client_cannot_destroy_the_parts_of_a_rollout(connect: Connect, raw: RawClients, run: str) -> None:
    agent = await connect("agent")
    large = VerifiedRollout(
        run=run, task_index=0, rollout_index=0, agent="a", row=b"{}", response={"n": _noise()}, reward=1.0
    )
    await OutcomeStore(agent).put(large, replaces=None, patience_s=60)
    operator = await connect("operator")
    written = await operator.js.count_by_subject("PARTS", f"gym.parts.rollout.{run}.>")
    assert len(written) > 1
    for name in ("client", "trainer", "bridge", "model", "resources"):
        attacker = await raw.connect(name)
        for subject in written:
            assert not await attacker.may_publish(subject, b"destroyed")
    found = await OutcomeStore(await connect("client")).find_outcome(run, 0, 0)
    assert found is not None
    assert found[1] == large


@pytest.mark.parametrize("name", ["client", "trainer", "bridge"])
async def test_large_tasks_are_submitted_in_parts_and_read_by_agents(connect: Connect, run: str, name: str) -> None:
    submitter, agent = await connect(name), await connect("agent")
    task = Task(run=run, task_index=0, rollout_index=0, agent="a", row=_noise(), timeout_s=60)
    await QueueClient(submitter).submit(task)
    (stored,) = [stored async for stored in submitter.js.read("TASKS", subjects.TASK.of(run))]
    assert await read_task(agent, stored.data) == task


def _noise() -> bytes:
    """What is larger than a message, and no smaller when compressed."""
    return random.Random(7).randbytes(9 << 20)
