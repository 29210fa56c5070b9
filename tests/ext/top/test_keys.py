"""`gymq top` on a terminal: keys scroll it, and it leaves the terminal as it was."""

import asyncio
import signal
from pathlib import Path

import pytest

from gymq.bus import Bus, streams
from gymq.cluster.server import EmbeddedServer
from tests.cli.conftest import Finished
from tests.cli.test_terminal import Terminal

ALTERNATE, NORMAL = "\x1b[?1049h", "\x1b[?1049l"
UP, DOWN, PAGE_DOWN = "\x1b[A", "\x1b[B", "\x1b[6~"


def test_keys_scroll_a_screen_that_is_too_small_and_q_quits(cluster: Finished) -> None:
    terminal = Terminal(80, "top", rows=6)
    terminal.read_until("lines 1 to 5 of")
    for keys, first in (("j", 2), (DOWN, 3), ("k", 2), (UP, 1), (PAGE_DOWN, 5), ("b", 1), ("jj" + DOWN, 4), ("g", 1)):
        terminal.type(keys)
        terminal.read_until(f"lines {first} to {first + 4} of")
    terminal.type("q")
    status, drawn = terminal.end()
    assert (status, drawn.count(NORMAL)) == (0, 1)


def test_a_screen_that_is_large_enough_is_not_scrolled(cluster: Finished) -> None:
    terminal = Terminal(120, "top", rows=200)
    terminal.read_until("q quits")
    terminal.type("\x1bOBjG")
    terminal.type("q")
    status, drawn = terminal.end()
    assert status == 0
    assert "lines " not in drawn


@pytest.mark.usefixtures("sighup_by_default")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(cluster: Finished, number: signal.Signals) -> None:
    terminal = Terminal(80, "top")
    terminal.read_until(ALTERNATE)
    terminal.read_until(" quits")
    terminal.send(number)
    status, drawn = terminal.end()
    assert (status, drawn.count(NORMAL)) == (0, 1)


def test_without_a_keyboard_it_runs_until_it_is_interrupted(cluster: Finished) -> None:
    terminal = Terminal(80, "top", has_keys=False)
    terminal.read_until("Ctrl-C quits")
    terminal.send(signal.SIGINT)
    assert terminal.end()[0] == 0


@pytest.mark.nightly
def test_an_error_leaves_the_terminal_as_it_was(here: Path) -> None:
    async def start() -> EmbeddedServer:
        server = EmbeddedServer(here / "other")
        await server.start()
        async with await Bus.connect(server.url, role="operator", name="test") as bus:
            await streams.ensure(bus.js, [])
        return server

    server = asyncio.run(start())
    try:
        terminal = Terminal(80, "top", "--nats", server.url)
        terminal.read_until("q quits")
    finally:
        asyncio.run(server.stop())
    status, drawn = terminal.end()
    assert status == 2
    assert "did not answer within" in drawn.partition(NORMAL)[2]
