"""An environment of OpenEnv in this process: an object of an installed package's class for each episode."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
from typing import Any

import aiohttp
import pydantic

import gymq
from gymq.authoring import first_problem
from gymq.protocol.messages import FailureClass

CLOSE_S = 5.0

log = logging.getLogger("gymq.openenv")

_OF_THE_STEP = {"reward", "done", "metadata"}  # what OpenEnv's server does not count as the observation either


def imported(option: str, path: str) -> Any:
    """Return the class that an option names with its module.

    Raises:
        OptionsError: it cannot be imported here.
    """
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # of whatever package it is
        cure = "add its package to the worker's Python (`isolated: [PACKAGE]`), or name a server of it as `base_url`"
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise gymq.OptionsError(f"{option}: {path} cannot be imported: {reason}; {cure}") from error
    if not isinstance(found, type):
        raise gymq.OptionsError(f"{option}: {path} is not a class")
    return found


class ImportedEpisode:
    """An episode in this process; the environment's methods run in threads."""

    def __init__(self, environment: Any, action: type[pydantic.BaseModel]) -> None:
        self._environment = environment
        self._action = action

    @classmethod
    async def begun(cls, environment: type, action: type[pydantic.BaseModel]) -> ImportedEpisode:
        """Make the environment.

        Raises:
            ComponentFailed: it cannot be made.
        """
        try:
            return cls(await asyncio.to_thread(environment), action)
        except Exception as error:
            raise _failed("begin", error) from error

    async def ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """See `ServedEpisode.ask`."""
        if kind == "step":
            try:
                action = self._action.model_validate(data)
            except pydantic.ValidationError as error:
                raise gymq.ToolError(422, first_problem(error)) from None
        try:
            if kind == "step":
                observed = await asyncio.to_thread(self._environment.step, action)
            else:
                observed = await asyncio.to_thread(self._environment.reset, **data)
            observation = observed.model_dump(mode="json", exclude=_OF_THE_STEP)
            return {"observation": observation, "reward": observed.reward, "done": observed.done}
        except Exception as error:
            raise _failed(kind, error) from error

    async def close(self) -> None:
        """End the episode. An environment that fails to end costs no verdict."""
        if (close := getattr(self._environment, "close", None)) is None:
            return
        try:
            await asyncio.to_thread(close)
        except Exception:
            log.warning("%s failed to close", type(self._environment).__name__, exc_info=True)


def _failed(kind: str, error: Exception) -> gymq.ComponentFailed:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return gymq.ComponentFailed(f"the environment failed to {kind}: {reason}")


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
