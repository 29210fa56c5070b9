"""openenv: environments of OpenEnv that run on a server of their own, with a WebSocket for each episode."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any, Literal

import aiohttp
import pydantic

import gymq
from gymq.protocol.messages import FailureClass

CLOSE_S = 5.0


class EnvironmentRow(gymq.Row):
    reset: dict[str, Any] = pydantic.Field(default_factory=dict)  # what the environment is reset with, such as its seed


class ServedEnvironment(gymq.TextEnvironment[EnvironmentRow]):
    """The sum of the rewards that the environment gave for the rollout's steps."""

    class Options(gymq.WorkerOptions):
        base_url: str | list[str]  # of the server, or of several with the same environment
        action_format: Literal["text", "json"] = "text"
        action_field: str = "message"  # of the action: it gets the model's text
        observation_field: str | None = None  # what the model reads; None: the whole observation, as JSON
        connect_timeout_s: pydantic.PositiveFloat = 30.0
        message_timeout_s: pydantic.PositiveFloat = 300.0  # for one answer
        max_message_bytes: pydantic.PositiveInt = 16 * 2**20

        @pydantic.model_validator(mode="before")
        @classmethod
        def _check_class(cls, given: Any) -> Any:
            """Refuse a class, which configurations of NeMo Gym name, without the address of a server."""
            if isinstance(given, dict) and "env_class" in given and "base_url" not in given:
                text = f"env_class {given['env_class']} is not imported here"
                raise ValueError(f"{text}; run it on a server of OpenEnv, and name that as `base_url`")
            return given

    reward_range = (-1000.0, 1000.0)
    needs = frozenset({"network"})

    async def start(self) -> None:
        given = self.options.base_url
        urls = [given] if isinstance(given, str) else given
        if not urls or not all(url.startswith(("http://", "https://")) for url in urls):
            raise gymq.OptionsError(f"{self.name}: base_url: must begin with http:// or https://")
        self._urls = itertools.cycle([f"{url.rstrip('/')}/ws" for url in urls])
        self._http = aiohttp.ClientSession()

    async def stop(self) -> None:
        await self._http.close()

    async def reset(self, row: EnvironmentRow) -> str:
        url = next(self._urls)
        try:
            async with asyncio.timeout(self.options.connect_timeout_s):
                self.socket = await self._http.ws_connect(url, max_msg_size=self.options.max_message_bytes)
        except (aiohttp.ClientError, OSError) as error:
            raise gymq.ComponentFailed(f"{url} cannot be reached: {type(error).__name__}") from None
        self.has_reward = False
        try:
            return self._shown(await self._asked("reset", row.reset))
        except BaseException:
            await self._disconnect()
            raise

    async def step(self, action: str) -> gymq.StepResult:
        answer = await self._asked("step", self._as_action(action))
        reward, done = answer.get("reward"), bool(answer.get("done"))
        self.has_reward |= reward is not None
        if done and not self.has_reward:
            raise gymq.ComponentFailed("the episode ended, and none of its steps had a reward")
        return self._shown(answer), reward or 0.0, done, False, {}

    async def close(self, state: gymq.Episode) -> None:
        assert isinstance(state.environment, ServedEnvironment)
        await state.environment._disconnect()

    async def _asked(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the data of the answer.

        Raises:
            ToolError: the environment does not know such an action.
            RolloutError: SATURATED, it has no room; COMPONENT_FAILED, it is gone or failed.
        """
        try:
            async with asyncio.timeout(self.options.message_timeout_s):
                await self.socket.send_json({"type": kind, "data": data})
                message = await self.socket.receive()
        except TimeoutError:
            limit_s = self.options.message_timeout_s
            raise gymq.ComponentFailed(f"the environment did not answer {kind} within {limit_s:g} s") from None
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

    def _as_action(self, action: str) -> dict[str, Any]:
        if self.options.action_format == "text":
            return {self.options.action_field: action}
        try:
            parsed = json.loads(action)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise gymq.ToolError(422, "An action must be a JSON object and nothing else.")
        return parsed

    def _shown(self, answer: dict[str, Any]) -> str:
        observation, field = answer.get("observation"), self.options.observation_field
        if field is not None:
            if not isinstance(observation, dict) or field not in observation:
                raise gymq.ComponentFailed(f"observation_field: the observation has no field {field!r}")
            observation = observation[field]
        return observation if isinstance(observation, str) else json.dumps(observation, ensure_ascii=False)

    async def _disconnect(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.socket.send_json({"type": "close"})
                await self.socket.close()
        except (aiohttp.ClientError, OSError):
            pass  # its server ends the episode when it notices


def _raise(kind: str, code: str, message: str) -> None:
    if code == "VALIDATION_ERROR" and kind == "step":
        raise gymq.ToolError(422, message)
    if code == "CAPACITY_REACHED":
        raise gymq.RolloutError(FailureClass.SATURATED, f"the environment's server has no room: {message}")
    raise gymq.ComponentFailed(f"the environment failed to {kind}: {code}: {message}")
