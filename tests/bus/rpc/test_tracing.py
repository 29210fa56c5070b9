"""Without a wish for traces nothing is traced; with one, what sends them has to be there."""

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from gymq.bus import Bus
from gymq.bus.rpc import tracing
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.serving import Server
from gymq.errors import GymqError
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import Generate, Generated


async def test_without_the_variable_no_message_carries_anything_more(shared_url: str, run: str) -> None:
    assert not tracing.is_wanted()
    bus = await Bus.connect(shared_url, role="test", name="test")
    seen: list[Any] = []

    async def note(message: Any) -> None:
        seen.append(message)

    subscription = await bus.subscribe(f"gym.model.{run}", note)
    server = Server(bus, f"w-{run}")
    await server.start()

    async def answer(subject: str, request: Any) -> Any:
        return Generated(response={"ok": True})

    await server.serve("model", f"gym.model.{run}", Decoder(Generate), answer, group="model", limit=1)
    request = Generate(rollout="r/0/0", timeout_s=30.0, params={}, session="s")
    reply = await Calls(bus).call(f"gym.model.{run}", request)
    assert isinstance(reply, Generated)
    assert [message.headers for message in seen] == [None]
    await bus.unsubscribe(subscription)
    await server.drain(0.0)
    await bus.close()


def test_without_a_package_that_sends_traces_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.EXPORTER, "otlp")
    none: list[EntryPoint] = []
    monkeypatch.setattr(tracing, "extensions", lambda kind: none)
    with pytest.raises(GymqError, match=r"no package has the entry point gymq\.tracing"):
        tracing.start("test")
