"""The mended client library: messages are read whole in whatever pieces they arrive, and listeners get each of them."""

import ast
import asyncio
import inspect
import re
from typing import Any

import nats.aio.client
import nats.aio.subscription
import nats.aio.transport
import nats.errors
import pytest

from gymq.bus import Bus, Msg, client
from gymq.bus.client import MendedClient
from tests.support.waiting import DEADLINE_S, until

STREAM = (
    b"MSG a 1 3\r\nxyz\r\n"
    b"PING\r\n"
    b"MSG b.c 2 _INBOX_x 5\r\n\r\nM\r\n\r\n"
    b"HMSG d 1 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n"
    b"MSG a\x0bb 1 reply\x0c 0\r\n\r\n"
    b"HMSG e 1 _INBOX_y 12 12\r\nNATS/1.0\r\n\r\n\r\n"
)
MESSAGES = [
    (1, b"a", b"", b"xyz", b""),
    (2, b"b.c", b"_INBOX_x", b"\r\nM\r\n", b""),
    (1, b"d", b"", b"hi", b"NATS/1.0\r\nA: b\r\n\r\n"),
    (1, b"a\x0bb", b"reply\x0c", b"", b""),
    (1, b"e", b"_INBOX_y", b"", b"NATS/1.0\r\n\r\n"),
]


class Reader(MendedClient):
    """A client without a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Any] = []
        self.num_pings = 0

    def take(self, *message: Any) -> bool:
        self.taken.append(message)
        return True

    async def _process_ping(self) -> None:
        self.num_pings += 1

    async def read(self, data: bytes) -> None:
        await self._ps.parse(data)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 30, len(STREAM)])
async def test_messages_are_read_whole_in_whatever_pieces_they_arrive(size: int) -> None:
    reader = Reader()
    for start in range(0, 2 * len(STREAM), size):
        await reader.read((STREAM * 2)[start : start + size])
    assert reader.taken == MESSAGES * 2
    assert reader.num_pings == 2


async def test_what_is_left_of_a_connection_is_not_read_as_part_of_the_next() -> None:
    reader = Reader()
    await reader.read(b"MSG a 1 3\r\nx")
    reader._ps.reset()
    await reader.read(STREAM)
    assert reader.taken == MESSAGES


@pytest.mark.parametrize("line", [b"MSG a\r\n", b"MSG a 1 x\r\n", b"MSG a b c d 1\r\n", b"HMSG a 1 2\r\n", b"NEWS\r\n"])
async def test_a_command_that_no_server_sends_ends_the_connection(line: bytes) -> None:
    with pytest.raises(nats.errors.ProtocolError):
        await Reader().read(line)


async def test_a_listener_gets_every_message_in_order_and_survives_its_own_errors(bus: Bus, run: str) -> None:
    seen: list[int] = []

    def take(message: Msg) -> None:
        seen.append(int(message.data))
        if len(seen) == 3:
            raise RuntimeError("of the listener")

    await bus.listen(run, take)
    await bus.flush()
    for number in range(2000):
        await bus.publish(run, b"%d" % number, headers={"A": "b"} if number % 2 else None)
    await until(lambda: len(seen) == 2000)
    assert seen == list(range(2000))


async def test_after_unsubscribing_a_listener_hears_nothing(bus: Bus, other_bus: Bus, run: str) -> None:
    seen: list[bytes] = []
    subscription = await bus.listen(run, lambda message: seen.append(message.data))
    await bus.publish(run, b"before")
    await bus.unsubscribe(subscription)
    await other_bus.publish(run, b"after")
    await other_bus.flush()
    await bus.flush()
    assert seen == [b"before"]


async def test_each_message_goes_to_one_listener_of_a_group(bus: Bus, other_bus: Bus, run: str) -> None:
    seen: list[bytes] = []
    for member in (bus, other_bus):
        await member.listen(run, lambda message: seen.append(message.data), group="g")
        await member.flush()
    for number in range(100):
        await bus.publish(run, b"%d" % number)
    await until(lambda: len(seen) == 100)
    assert len(set(seen)) == 100


@pytest.mark.parametrize("subject", ["a b", "a\r\nPUB c 0\r\n", "", "a\tb"])
async def test_a_subject_that_could_be_read_as_a_command_is_refused(bus: Bus, subject: str) -> None:
    async with asyncio.timeout(300):
        with pytest.raises(Exception, match="nats: invalid subject"):
            await bus.publish(subject, b"x")
        with pytest.raises(Exception, match="nats: invalid subject"):
            await bus.publish("a", b"x", reply=subject or " ")


async def test_a_flush_that_is_given_up_costs_the_connection_nothing(bus: Bus, run: str) -> None:
    heard = asyncio.Event()
    await bus.listen(run, lambda _: heard.set())
    flushing = asyncio.create_task(bus.flush())
    while not bus._nc._pongs and not flushing.done():  # noqa: ASYNC110
        await asyncio.sleep(0)
    flushing.cancel()  # before the server has answered
    await bus.flush()
    await bus.publish(run, b"")
    async with asyncio.timeout(DEADLINE_S):
        await heard.wait()
    assert bus.reconnects == 0  # nor did it have to be replaced


def test_the_library_has_each_private_name_that_is_used() -> None:
    tree = ast.parse(inspect.getsource(client))
    methods = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used = {name for name in methods | attributes if name.startswith("_") and not name.startswith("__")}
    used |= {name for name in attributes if name.isupper()}
    own = {"_connection", "_is_plain", "_rest", "_socket", "_wanted"}
    modules = (nats.aio.client, nats.aio.subscription, nats.aio.transport)
    library = set(re.findall(r"\w+", "".join(map(inspect.getsource, modules))))
    assert used - library == own
