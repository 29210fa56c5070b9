"""A client that does what an attacker would: publishes and subscribes to anything, with any reply subject."""

from __future__ import annotations

import json
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.support.waiting import DEADLINE_S


class RawClient:
    def __init__(self) -> None:
        self._nc = Client()
        self._errors: list[str] = []

    @classmethod
    async def connect(cls, url: str, role: str) -> RawClient:
        client = cls()

        async def on_error(error: Exception) -> None:
            client._errors.append(str(error))

        prefix = f"_INBOX_{role}".encode()
        await client._nc.connect(url, error_cb=on_error, inbox_prefix=prefix, allow_reconnect=False)
        return client

    async def close(self) -> None:
        await self._nc.close()

    async def may_publish(self, subject: str, body: bytes = b"{}", *, reply: str = "", **headers: str) -> bool:
        """Publish; whether the server let it."""
        self._errors.clear()
        await self._nc.publish(subject, body, reply=reply, headers=headers or None)
        await self.flush()
        return not self._denied()

    async def may_subscribe(self, subject: str, group: str = "") -> bool:
        """Subscribe; whether the server let it."""
        self._errors.clear()
        subscription = await self._nc.subscribe(subject, queue=group)
        await self.flush()
        await subscription.unsubscribe()
        return not self._denied()

    async def hears(self, subject: str, group: str = "", heard: list[Msg] | None = None) -> list[Msg]:
        """A list, new or given, that fills with what arrives."""
        heard = [] if heard is None else heard

        async def on_message(message: Msg) -> None:
            heard.append(message)

        await self._nc.subscribe(subject, queue=group, cb=on_message)
        await self.flush()
        return heard

    async def api(self, subject: str, body: Any = None) -> dict[str, Any]:
        """A request to JetStream."""
        payload = b"" if body is None else json.dumps(body).encode()
        answer: dict[str, Any] = json.loads(
            (await self._nc.request(f"$JS.API.{subject}", payload, timeout=DEADLINE_S)).data
        )
        return answer

    async def flush(self) -> None:
        """Wait until the server has handled everything, and said what it denies."""
        await self._nc._flush_pending(force_flush=True)  # a flush alone may overtake what waits to be sent
        await self._nc.flush()

    def _denied(self) -> bool:
        assert all("permissions violation" in error for error in self._errors), self._errors
        return bool(self._errors)
