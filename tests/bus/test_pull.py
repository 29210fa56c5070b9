"""Pulling from a durable consumer: no more than asked for, nothing left behind."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from gymq.bus import Bus, BusError, streams
from gymq.bus.consumer import Consumer
from gymq.bus.jetstream import JetStream
from gymq.bus.pull import Delivery, Pull
from gymq.cluster.server import EmbeddedServer
from tests.support.waiting import DEADLINE_S, until, until_answer

Kill = Callable[[], Awaitable[None]]


async def make_queue(js: JetStream, name: str, **config: Any) -> None:
    """A work queue with one consumer, both of one name."""
    await js.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"], "retention": "workqueue"})
    await streams.ensure_consumer(js, name, name, config)


@pytest.fixture
async def queue(js: JetStream, run: str) -> str:
    await make_queue(js, run)
    return run


async def put(js: JetStream, queue: str, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        await js.store(f"{queue}.x", b"%d" % number)


async def info(js: JetStream, queue: str) -> dict[str, Any]:
    return await js.api(f"CONSUMER.INFO.{queue}.{queue}")


class Taken:
    """Collects deliveries."""

    def __init__(self, bus: Bus, queue: str) -> None:
        self.deliveries: list[Delivery] = []
        self.pull = Pull(bus, queue, queue, self.deliveries.append)

    @property
    def numbers(self) -> list[int]:
        return [int(delivery.data) for delivery in self.deliveries]


async def test_what_was_asked_for_is_handed_over_and_no_more(bus: Bus, js: JetStream, queue: str) -> None:
    await put(js, queue, 30)
    taken = Taken(bus, queue)
    await taken.pull.start()
    await taken.pull.ask(4)
    await taken.pull.ask(6)
    assert taken.pull.outstanding == 10
    await until(lambda: len(taken.deliveries) == 10)
    assert taken.pull.outstanding == 0
    await asyncio.sleep(0.1)
    await bus.flush()
    assert taken.numbers == list(range(10))
    assert (await info(js, queue))["num_pending"] == 20


async def test_what_comes_later_is_handed_over_as_it_comes(bus: Bus, js: JetStream, queue: str) -> None:
    taken = Taken(bus, queue)
    await taken.pull.start()
    await taken.pull.ask(3)
    for number in range(3):
        await put(js, queue, 1, start=number)
        await until(lambda: taken.numbers == list(range(number + 1)))  # noqa: B023


async def test_a_delivery_crosses_the_wire_once(bus: Bus, js: JetStream, queue: str) -> None:
    """The connection's own inbox must not match the pull's as well."""
    twice: list[Any] = []
    bus.on_late_reply(twice.append)
    await put(js, queue, 3)
    taken = Taken(bus, queue)
    await taken.pull.start()
    await taken.pull.ask(3)
    await until(lambda: len(taken.deliveries) == 3)
    await bus.flush()
    assert not twice


async def test_an_acknowledged_message_is_gone(bus: Bus, js: JetStream, queue: str) -> None:
    await put(js, queue, 1)
    taken = Taken(bus, queue)
    await taken.pull.start()
    await taken.pull.ask(1)
    await until(lambda: taken.deliveries)
    await taken.deliveries[0].ack()
    await bus.flush()
    assert (await js.api(f"STREAM.INFO.{queue}"))["state"]["messages"] == 0


async def test_a_message_given_back_comes_again_and_counts(bus: Bus, js: JetStream, queue: str) -> None:
    await put(js, queue, 1)
    taken = Taken(bus, queue)
    await taken.pull.start()
    for number in (1, 2, 3):
        await taken.pull.ask(1)
        await until(lambda: len(taken.deliveries) == number)  # noqa: B023
        await taken.deliveries[-1].nak()
    assert [delivery.num_delivered for delivery in taken.deliveries] == [1, 2, 3]
    assert {delivery.sequence for delivery in taken.deliveries} == {1}


async def test_a_message_nobody_settles_goes_to_another(bus: Bus, js: JetStream, other_bus: Bus, run: str) -> None:
    await make_queue(js, run, ack_wait=300_000_000)
    await put(js, run, 1)
    lazy, eager = Taken(bus, run), Taken(other_bus, run)
    for taken in (lazy, eager):
        await taken.pull.start()
    await lazy.pull.ask(1)
    await until(lambda: lazy.deliveries)
    await eager.pull.ask(1)
    await until(lambda: eager.deliveries)
    assert eager.deliveries[0].num_delivered == 2


async def test_a_message_in_progress_does_not_go_to_another(bus: Bus, js: JetStream, other_bus: Bus, run: str) -> None:
    await make_queue(js, run, ack_wait=4_000_000_000)
    await put(js, run, 1)
    slow, eager = Taken(bus, run), Taken(other_bus, run)
    for taken in (slow, eager):
        await taken.pull.start()
    await slow.pull.ask(1)
    await until(lambda: slow.deliveries)
    await eager.pull.ask(1)
    for _ in range(50):  # five seconds
        await slow.deliveries[0].in_progress()
        await asyncio.sleep(0.1)
    await slow.deliveries[0].ack()
    await until_answer(lambda: info(js, run), lambda found: found["num_ack_pending"] == 0)
    assert not eager.deliveries


async def test_a_request_that_expires_is_not_outstanding_any_more(
    bus: Bus, js: JetStream, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pull, "EXPIRES_S", 0.3)
    taken = Taken(bus, queue)
    ended = asyncio.Event()
    taken.pull.on_end = ended.set
    await taken.pull.start()
    await put(js, queue, 2)
    await taken.pull.ask(5)
    await asyncio.wait_for(ended.wait(), DEADLINE_S)
    assert taken.numbers == [0, 1]
    assert taken.pull.outstanding == 0


async def test_a_request_that_is_refused_is_not_repeated_at_once(
    bus: Bus, js: JetStream, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await js.api(f"CONSUMER.DELETE.{queue}.{queue}")
    taken = Taken(bus, queue)
    monkeypatch.setattr(Pull, "ASK_AGAIN_S", 3600.0)
    ended = []
    taken.pull.on_end = lambda: ended.append(True)
    await taken.pull.start()
    await taken.pull.ask(1)
    await until(lambda: taken.pull.outstanding == 0)  # the refusal has arrived
    assert not ended
    monkeypatch.setattr(Pull, "ASK_AGAIN_S", 0.1)
    await taken.pull.ask(1)
    await until(lambda: ended)


async def test_asking_without_a_connection_is_an_error_and_not_a_debt(
    own_server: EmbeddedServer, own_bus: Bus, kill_server: Kill
) -> None:
    """A request that is kept and sent on reconnecting would come on top of what is asked for then."""
    js = own_bus.js
    await make_queue(js, "q")
    await put(js, "q", 20)
    taken = Taken(own_bus, "q")
    await taken.pull.start()
    own_bus.on_reconnect(taken.pull.reset)
    await kill_server()
    await until(lambda: not own_bus.is_connected)
    with pytest.raises(BusError, match="not connected"):
        await taken.pull.ask(5)
    await own_server.start()
    await until(lambda: own_bus.reconnects == 1)
    await taken.pull.ask(5)
    await until(lambda: len(taken.deliveries) == 5)
    await asyncio.sleep(0.1)
    await own_bus.flush()
    assert len(taken.deliveries) == 5


async def test_pulling_continues_after_the_server_restarted(
    own_server: EmbeddedServer, own_bus: Bus, kill_server: Kill
) -> None:
    js = own_bus.js
    await make_queue(js, "q")
    taken = Taken(own_bus, "q")
    asked_again = asyncio.Event()
    taken.pull.on_end = asked_again.set
    own_bus.on_reconnect(taken.pull.reset)
    await taken.pull.start()
    await taken.pull.ask(3)
    await kill_server()
    await until(lambda: not own_bus.is_connected)
    await own_server.start()
    await asyncio.wait_for(asked_again.wait(), DEADLINE_S)
    assert taken.pull.outstanding == 0
    await taken.pull.ask(3)
    await put(js, "q", 3)
    await until(lambda: taken.numbers == [0, 1, 2])


async def test_after_stopping_the_next_message_goes_to_another_at_once(
    bus: Bus, js: JetStream, other_bus: Bus, queue: str
) -> None:
    """A request left behind would take the message, and it would be lost until the server notices."""
    gone, alive = Taken(bus, queue), Taken(other_bus, queue)
    for taken in (gone, alive):
        await taken.pull.start()
    await gone.pull.ask(10)
    await bus.flush()
    await gone.pull.stop()
    await put(js, queue, 3)
    await alive.pull.ask(3)
    await until(lambda: alive.numbers == [0, 1, 2])
    assert not gone.deliveries
    assert [delivery.num_delivered for delivery in alive.deliveries] == [1, 1, 1]


@pytest.mark.parametrize("prefix", ["$JS.ACK", "$JS.ACK.domain.hash"])
def test_an_acknowledgement_subject_of_either_form_is_understood(prefix: str) -> None:
    reply = f"{prefix}.TASKS.agents_x.3.17.9.1700000000000000000.5" + ("" if prefix == "$JS.ACK" else ".token")
    message = Msg(Client(), subject="gym.tasks.r.x", reply=reply, data=b"")
    delivery = Delivery(None, message)  # type: ignore[arg-type]
    assert (delivery.num_delivered, delivery.sequence) == (3, 17)


async def test_a_consumer_handles_every_message_once_and_in_order(bus: Bus, js: JetStream, queue: str) -> None:
    handled = []

    async def handle(delivery: Delivery) -> None:
        handled.append(int(delivery.data))
        await delivery.ack()

    await put(js, queue, 50)
    consumer = Consumer(bus, queue, queue, handle, batch=16)
    await consumer.start()
    await put(js, queue, 50, start=50)
    await until(lambda: len(handled) == 100)
    await consumer.stop()
    assert handled == list(range(100))


@pytest.mark.parametrize("error", [BusError("no"), ValueError("no")])
async def test_a_consumer_continues_after_a_message_that_cannot_be_handled(
    bus: Bus, js: JetStream, run: str, error: Exception
) -> None:
    await make_queue(js, run, ack_wait=2_000_000_000)  # a busy machine takes more than half of one to acknowledge
    handled = []

    async def handle(delivery: Delivery) -> None:
        if delivery.data == b"1" and delivery.num_delivered == 1:
            raise error
        handled.append(int(delivery.data))
        await delivery.ack()

    await put(js, run, 3)
    consumer = Consumer(bus, run, run, handle)
    await consumer.start()
    await until(lambda: len(handled) == 3)
    await consumer.stop()
    assert handled == [0, 2, 1]


async def test_a_consumer_that_stops_gives_back_what_it_has(
    bus: Bus, js: JetStream, other_bus: Bus, queue: str
) -> None:
    started = asyncio.Event()

    async def stuck(delivery: Delivery) -> None:
        started.set()
        await asyncio.sleep(3600)

    await put(js, queue, 5)
    consumer = Consumer(bus, queue, queue, stuck)
    await consumer.start()
    await asyncio.wait_for(started.wait(), DEADLINE_S)
    await until_answer(lambda: info(js, queue), lambda now: now["num_ack_pending"] == 5)
    await consumer.stop()
    taken = Taken(other_bus, queue)
    await taken.pull.start()
    await taken.pull.ask(5)
    await until(lambda: sorted(taken.numbers) == [0, 1, 2, 3, 4])


async def test_a_consumer_survives_the_restart_of_the_server(
    own_server: EmbeddedServer, own_bus: Bus, kill_server: Kill
) -> None:
    js = own_bus.js
    await make_queue(js, "q")
    handled = set()

    async def handle(delivery: Delivery) -> None:
        handled.add(int(delivery.data))
        await delivery.ack()

    consumer = Consumer(own_bus, "q", "q", handle)
    await consumer.start()
    await put(js, "q", 3)
    await until(lambda: len(handled) == 3)
    await kill_server()
    await own_server.start()
    await until(lambda: own_bus.reconnects == 1)
    await put(js, "q", 3, start=3)
    await until(lambda: len(handled) == 6)
    await consumer.stop()
