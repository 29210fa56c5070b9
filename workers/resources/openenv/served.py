"""An environment behind OpenEnv's protocol: a WebSocket for each episode."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp

import gymq
from gymq.protocol.messages import FailureClass

CLOSE_S = 5.0


class ServedEpisode:
    """An episode on a server."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    @classmethod
    async def begun(cls, http: aiohttp.ClientSession, url: str, *, connect_s: float, max_bytes: int) -> ServedEpisode:
        """Connect to a server.

        Args:
            url: of its WebSocket.
            connect_s: limit, in seconds.
            max_bytes: of one answer.

        Raises:
            ComponentFailed: it cannot be reached.
        """
        try:
            async with asyncio.timeout(connect_s):
                return cls(await http.ws_connect(url, max_msg_size=max_bytes))
        except (aiohttp.ClientError, OSError) as error:
            raise gymq.ComponentFailed(f"{url} cannot be reached: {type(error).__name__}") from None

    async def ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Send a message; return the data of the answer: `observation`, `reward`, `done`.

        Args:
            kind: `reset` or `step`.
            data: for `reset`, or an action.

        Raises:
            ToolError: the environment does not know such an action.
            RolloutError: SATURATED, it has no room; COMPONENT_FAILED, it is gone or failed.
        """
        try:
            await self._socket.send_json({"type": kind, "data": data})
            message = await self._socket.receive()
        except (aiohttp.ClientError, OSError) as error:
            raise gymq.ComponentFailed(f"the environment is gone: {type(error).__name__}") from None
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise gymq.ComponentFailed(f"the environment ended the connection at {kind}: {message.type.name}")
        try:
            answer = json.loads(message.data)
        except (ValueError, RecursionError):
            raise gymq.ComponentFailed(f"the environment answered {kind} with something else than JSON") from None
        found = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(found, dict):
            raise gymq.ComponentFailed(f"the environment answered {kind} with {answer!r:.200}")
        if answer.get("type") == "error":
            _raise(kind, str(found.get("code")), str(found.get("message")))
        return found

    async def close(self) -> None:
        """End the episode. A server that does not hear of it ends it when it notices."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._socket.send_json({"type": "close"})
                await self._socket.close()
        except (aiohttp.ClientError, OSError):
            pass


def _raise(kind: str, code: str, message: str) -> None:
    if code == "VALIDATION_ERROR" and kind == "step":
        raise gymq.ToolError(422, message)
    if code == "CAPACITY_REACHED":
        raise gymq.RolloutError(FailureClass.SATURATED, f"the environment's server has no room: {message}")
    raise gymq.ComponentFailed(f"the environment failed to {kind}: {code}: {message}")
