"""Ways around permissions that lead through somebody who has them: the server, a worker, an acknowledgement."""

import asyncio
import itertools

import pytest

from gymq.bus import Bus, BusError, Denied, streams
from gymq.bus.rpc import tries
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.serving import Server
from gymq.failures import RolloutError
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import Generate, Generated, Seed
from gymq.protocol.subjects import TaskQueueName
from tests.support.waiting import DEADLINE_S, until

from .conftest import RawClients, RoleServer

FORGED = b"stored by whoever may not"


async def is_stored(raw: RawClients, stream: str, subject: str) -> bool:
    operator = await raw.connect("operator")
    answer = await operator.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
    return "error" not in answer


async def settled(raw: RawClients) -> None:
    """Wait until the server has done what it was asked before, JetStream included."""
    operator = await raw.connect("operator")
    await operator.api("STREAM.INFO.ROLLOUTS")


# JetStream as the messenger -------------------------------------------------------------------------------------------


async def test_a_stored_message_read_with_another_reply_subject_is_not_stored_there(raw: RawClients, run: str) -> None:
    client = await raw.connect("client")
    rollout = f"gym.rollouts.{run}.0.0"
    assert await client.may_publish(f"gym.runs.{run}", FORGED)
    assert await is_stored(raw, "RUNS", f"gym.runs.{run}")
    batch = b'{"seq": 1, "next_by_subj": "gym.runs.%s", "batch": 1}' % run.encode()
    own_inbox = await client.hears("_INBOX_client.server.box.*")
    for reply in (rollout, "_INBOX_client.server.box.1"):
        assert await client.may_publish(f"$JS.API.DIRECT.GET.RUNS.gym.runs.{run}", b"", reply=reply)
        assert await client.may_publish("$JS.API.DIRECT.GET.RUNS", batch, reply=reply)
    await settled(raw)
    await client.flush()
    assert [message.data for message in own_inbox] == [FORGED, FORGED, b""], "the same request, honestly made"
    assert not await is_stored(raw, "ROLLOUTS", rollout)


@pytest.mark.parametrize("role", ["client", "model", "resources"])
async def test_an_acknowledgement_with_another_reply_subject_is_not_stored_there(
    raw: RawClients, role: str, run: str
) -> None:
    attacker = await raw.connect(role)
    rollout = f"gym.rollouts.{run}.0.0"
    part = f"gym.parts.call.{role}.{run}.0"
    assert await attacker.may_publish(part, FORGED, reply=rollout)
    assert await is_stored(raw, "PARTS", part)
    assert await attacker.may_publish(f"$JS.API.DIRECT.GET.PARTS.{part}", b"", reply=rollout)
    await settled(raw)
    assert not await is_stored(raw, "ROLLOUTS", rollout)


async def test_an_agent_cannot_have_its_task_delivered_as_somebodys_rollout(
    role_server: RoleServer, raw: RawClients, run: str
) -> None:
    client, agent = await raw.connect("client"), await raw.connect("agent")
    assert await client.may_publish(f"gym.tasks.{run}.a", FORGED)
    await settled(raw)
    rollout = f"gym.rollouts.{run}.0.0"
    pull = b'{"batch": 1, "expires": 1000000000}'
    queue = TaskQueueName("tasks", run, "a")
    operator = await Bus.connect(role_server.url_of("operator"), role="operator", name="test")
    await streams.ensure_queue(operator.js, queue, ack_wait_s=30.0)
    await operator.close()
    assert await agent.may_publish(f"$JS.API.CONSUMER.MSG.NEXT.TASKS.{queue.consumer}", pull, reply=rollout)
    await settled(raw)
    assert not await is_stored(raw, "ROLLOUTS", rollout)


# Workers as messengers ------------------------------------------------------------------------------------------------


async def serving(server: RoleServer, role: str, run: str) -> Bus:
    """A worker that answers `gym.model.<run>`."""
    bus = await Bus.connect(server.url_of(role), role=role, name="worker")
    worker = Server(bus, run)
    await worker.start()

    async def answer(_subject: str, _request: object) -> Generated:
        return Generated(response={})

    await worker.serve(run, f"gym.model.{run}", Decoder(Generate), answer, group="model", limit=1)
    await bus.flush()
    return bus


async def test_a_worker_answers_into_inboxes_only(role_server: RoleServer, raw: RawClients, run: str) -> None:
    worker = await serving(role_server, "model", run)
    agent = await raw.connect("agent")
    operator = await raw.connect("operator")
    heard = await operator.hears(f"gym.rollouts.{run}.>")
    answers = await agent.hears("_INBOX_agent.model.box.1")
    body = encode(Generate(rollout="r", timeout_s=5, session="s", params={}))
    before = role_server.violations()
    for reply in (f"gym.rollouts.{run}.0.0", "$JS.API.STREAM.PURGE.ROLLOUTS", "_INBOX_agent.model.box.1"):
        assert await agent.may_publish(f"gym.model.{run}", body, reply=reply)
    await until(lambda: answers)
    await worker.close()
    assert len(answers) == 1
    assert heard == []
    assert role_server.violations() == before, "the worker did not even try"


async def test_a_reply_subject_cannot_be_guessed_from_another_one(role_server: RoleServer) -> None:
    bus = await Bus.connect(role_server.url_of("agent"), role="agent", name="test")
    numbers = [int(bus.expect(lambda _: None, "model").rpartition(".")[2], 16) for _ in range(1000)]
    await bus.close()
    assert len(set(numbers)) == 1000
    assert max(numbers) > 1 << 94
    steps = {later - earlier for earlier, later in itertools.pairwise(numbers)}
    assert len(steps) == 999


async def test_a_worker_that_was_not_asked_cannot_deliver_tasks(
    role_server: RoleServer, raw: RawClients, run: str
) -> None:
    agent = await Bus.connect(role_server.url_of("agent"), role="agent", name="test")
    resources = await raw.connect("resources")
    for answered_by in ("server", "resources", "any"):
        pull = f"_INBOX_agent.{answered_by}.{agent.box}.pull.tasks_a@run"
        assert not await resources.may_publish(pull, FORGED, reply="$JS.ACK.TASKS.x.1.1.1.1.1")
    await agent.close()


# What the denied are shown --------------------------------------------------------------------------------------------


async def test_a_denied_request_ends_at_once_with_the_subject(role_server: RoleServer, run: str) -> None:
    bus = await Bus.connect(role_server.url_of("model"), role="model", name="test")
    with pytest.raises(Denied, match=f"gym.rollouts.{run}.0.0"):
        async with asyncio.timeout(DEADLINE_S):
            await bus.js.publish_with_retry(f"gym.rollouts.{run}.0.0", b"x", {}, patience_s=600)
    await bus.close()


async def test_a_denied_call_ends_at_once_with_the_subject_and_is_not_retried(
    role_server: RoleServer, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "ACCEPT_TIMEOUT_S", 600.0)  # without the server's word it would end by this
    bus = await Bus.connect(role_server.url_of("client"), role="client", name="test")
    with pytest.raises(RolloutError, match=f"does not let this user publish to gym.seed.{run}") as caught:
        async with asyncio.timeout(DEADLINE_S):
            await Calls(bus).call(f"gym.seed.{run}", Seed(rollout="r", timeout_s=600.0, row=b"{}"))
    assert (caught.value.retryable, caught.value.curable) == (False, True)
    assert sum(f"gym.seed.{run}" in line for line in role_server.violations()) == 1
    await bus.close()


async def test_other_requests_continue_when_one_is_denied(role_server: RoleServer, run: str) -> None:
    bus = await Bus.connect(role_server.url_of("client"), role="client", name="test")
    js = bus.js
    stored = asyncio.create_task(js.store(f"gym.runs.{run}", b"x"))
    with pytest.raises(Denied):
        await js.api("STREAM.PURGE.ROLLOUTS")
    with pytest.raises(Denied, match="JOURNAL"):
        await bus.retry_read(lambda: anext(js.read(streams.JOURNAL, ">", timeout_s=600.0)), patience_s=600.0)
    assert (await stored).seq > 0
    await bus.close()


async def test_the_user_of_one_role_cannot_connect_as_another(role_server: RoleServer) -> None:
    with pytest.raises(BusError, match="another role"):
        await Bus.connect(role_server.url_of("resources"), role="agent", name="test")


async def test_a_role_without_workers_to_call_hears_that_nobody_serves(role_server: RoleServer, run: str) -> None:
    bus = await Bus.connect(role_server.url_of("agent"), role="agent", name="test")
    with pytest.raises(RolloutError):
        await Calls(bus).call(f"gym.seed.{run}", Seed(rollout="r", timeout_s=0.5, row=b"{}"))
    await bus.close()
