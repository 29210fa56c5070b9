"""openenv: environments of OpenEnv, on servers of their own or as classes of an installed package."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any, Literal

import aiohttp
import pydantic
from gymq.workers.resources.openenv.imported import ImportedEpisode, ServedEpisode, imported

import gymq


class EnvironmentRow(gymq.Row):
    reset: dict[str, Any] = pydantic.Field(default_factory=dict)  # what the environment is reset with, such as its seed


class OpenEnvironment(gymq.TextEnvironment[EnvironmentRow]):
    """The sum of the rewards that the environment gave for the rollout's steps."""

    class Options(gymq.WorkerOptions):
        base_url: str | list[str] | None = None  # of the server, or of several with the same environment
        env_class: str | None = None  # without a server: the class of the environment, with its module
        action_class: str | None = None  # that of its actions
        reset_kwargs: dict[str, Any] = pydantic.Field(default_factory=dict)  # for rows without their own
        is_mcp: bool = False  # the tools of rows are those of the environment; otherwise there is one, `step`
        action_format: Literal["text", "json"] = "text"
        action_field: str = "message"  # of the action: it gets the model's text
        observation_field: str | None = None  # what the model reads; None: the whole observation, as JSON
        connect_timeout_s: pydantic.PositiveFloat = 30.0
        message_timeout_s: pydantic.PositiveFloat = 300.0  # for one answer
        max_message_bytes: pydantic.PositiveInt = 16 * 2**20

        @pydantic.model_validator(mode="after")
        def _check_place(self) -> OpenEnvironment.Options:
            if self.base_url is None and (self.env_class is None or self.action_class is None):
                raise ValueError("set `base_url`, a server, or `env_class` and `action_class`, classes of a package")
            return self

    reward_range = (-1000.0, 1000.0)
    needs = frozenset({"network"})

    async def start(self) -> None:
        options = self.options
        self._classes: tuple[type, type[pydantic.BaseModel]] | None = None
        if options.base_url is None:
            environment = imported(f"{self.name}: env_class", str(options.env_class))
            self._classes = environment, imported(f"{self.name}: action_class", str(options.action_class))
            return
        urls = [options.base_url] if isinstance(options.base_url, str) else options.base_url
        if not urls or not all(url.startswith(("http://", "https://")) for url in urls):
            raise gymq.OptionsError(f"{self.name}: base_url: must begin with http:// or https://")
        self._urls = itertools.cycle([f"{url.rstrip('/')}/ws" for url in urls])
        self._http = aiohttp.ClientSession()

    async def stop(self) -> None:
        if self._classes is None:
            await self._http.close()

    async def open(self, row: EnvironmentRow) -> gymq.Episode:
        functions = {str(tool["name"]) for tool in row.responses_create_params.get("tools") or () if "name" in tool}
        if functions and not self.options.is_mcp and functions != {"step"}:
            names = ", ".join(sorted(functions))
            raise gymq.InvalidTask(f"the row offers {names}; without `is_mcp` an environment has one tool, step")
        episode = await super().open(row)
        assert isinstance(episode.environment, OpenEnvironment)
        episode.environment.functions = functions
        episode.is_begun |= bool(functions)  # a response without a call is an episode, too
        return episode

    async def reset(self, row: EnvironmentRow) -> str:
        self.functions: set[str] = set()  # that a row offers to the model
        self.has_reward = False
        self.episode = await self._begin()
        try:
            return self._shown(await self._asked("reset", self.options.reset_kwargs | row.reset))
        except BaseException:
            await self.episode.close()
            raise

    async def step(self, action: str) -> gymq.StepResult:
        answer = await self._asked("step", self._as_action(action))
        reward, done = answer.get("reward"), bool(answer.get("done"))
        self.has_reward |= reward is not None
        if done and not self.has_reward:
            raise gymq.ComponentFailed("the episode ended, and none of its steps had a reward")
        return self._shown(answer), reward or 0.0, done, False, {}

    async def close(self, state: gymq.Episode) -> None:
        assert isinstance(state.environment, OpenEnvironment)
        await state.environment.episode.close()

    async def call_tool(self, state: gymq.Episode, name: str, arguments: Any) -> Any:
        """Run a tool that the row offers, which is an action; else one for `gymnasium_agent`."""
        environment = state.environment
        assert isinstance(environment, OpenEnvironment)
        if name not in environment.functions:
            return await super().call_tool(state, name, arguments)
        is_mcp = self.options.is_mcp
        action = {"tool_name": name, "arguments": arguments or {}} if is_mcp else arguments
        answer = await super().call_tool(state, "step", {"action": json.dumps(action)})
        try:
            observed = json.loads(answer["observation"])
        except ValueError:
            observed = None
        if is_mcp:  # as the environment's own server answers
            members = observed if isinstance(observed, dict) else {"error": answer["observation"]}
            return {"result": members.get("result"), "error": members.get("error")}
        members = observed if isinstance(observed, dict) else {"observation": answer["observation"]}
        return {**members, "reward": answer["reward"], "done": answer["terminated"]}

    async def _begin(self) -> ServedEpisode | ImportedEpisode:
        if self._classes is not None:
            return await ImportedEpisode.begun(*self._classes)
        options = self.options
        connect_s, max_bytes = options.connect_timeout_s, options.max_message_bytes
        return await ServedEpisode.begun(self._http, next(self._urls), connect_s=connect_s, max_bytes=max_bytes)

    async def _asked(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Return what the environment answers; raises what `ServedEpisode.ask` does."""
        try:
            async with asyncio.timeout(self.options.message_timeout_s):
                return await self.episode.ask(kind, data)
        except TimeoutError:
            limit_s = self.options.message_timeout_s
            raise gymq.ComponentFailed(f"the environment did not answer {kind} within {limit_s:g} s") from None

    def _as_action(self, action: str) -> dict[str, Any]:
        if self.options.action_format == "text" and not self.functions:
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
