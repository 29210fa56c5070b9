"""Serves one resources instance on the bus."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from gymq.bus.rpc.serving import Server
from gymq.execution.sessions import LocalResources
from gymq.processes import KillableProcesses
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import BlobRef, Close, Message, Seed, ToolCall, Verify
from gymq.resources import Resources

log = logging.getLogger("gymq.resources")

SWEEP_EVERY_S = 5.0

_decode_seed = Decoder(Seed, BlobRef)
_decode_call = Decoder(ToolCall, Verify, Seed, Close, BlobRef)


class ResourcesRunner:
    """Answers seeds, tool calls and verifications with a `Resources` object."""

    def __init__(self, author: Resources[Any], processes: KillableProcesses) -> None:
        self.local = LocalResources(author, processes)
        self._author = author
        self._owner = ""
        self._sweeping: asyncio.Task[None] | None = None

    async def serve(self, server: Server) -> None:
        author = self._author
        limit = author.options.max_concurrency or author.max_concurrency
        self._owner = f"{server.worker}-{len(server.services)}"
        group = subjects.RESOURCES_GROUP
        await server.serve(
            author.name, subjects.SEED.of(author.name), _decode_seed, self._seed, group=group, limit=limit
        )
        if author.stateful:
            # Sessions cannot go elsewhere, so all their calls are taken.
            await server.serve(
                author.name, subjects.SESSION.of(self._owner), _decode_call, self._in_session, limit=limit
            )
            self._sweeping = asyncio.create_task(self._sweep())
        await server.serve(
            author.name, subjects.STATELESS.of(author.name), _decode_call, self._stateless, group=group, limit=limit
        )

    def stats(self) -> dict[str, Any]:
        """Return how many sessions are open, and the weakness of its sandbox, if it has one."""
        # `gymq.sandbox` is imported only where it is used: the import takes long.
        sandbox = getattr(self._author, "sandbox", None)
        return {"sessions": len(self.local.sessions), "sandbox_weakness": str(getattr(sandbox, "weakness", ""))}

    async def drain(self, deadline_s: float) -> None:
        """Wait until the open sessions are closed by their rollouts, for at most `deadline_s` seconds."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + deadline_s
        while self.local.sessions and loop.time() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        """Close the sessions that are left, once the server has stopped their calls: a session closes after them."""
        await self.local.close_all()
        if self._sweeping is not None:
            self._sweeping.cancel()

    async def _seed(self, _subject: str, request: Seed) -> Message:
        return await self.local.open(request, subjects.SESSION.of(self._owner))

    async def _in_session(self, subject: str, request: Any) -> Message:
        return await self.local.in_session(subject.rpartition(".")[2], request)

    async def _stateless(self, _subject: str, request: Any) -> Message:
        return await self.local.without_session(request)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            closed = await self.local.close_idle()
            if closed:
                log.warning("%s: closed %d idle sessions", self._author.name, closed)
