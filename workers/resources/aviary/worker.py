"""aviary: environments of Aviary (Narayanan et al., 2024), which bring their own prompts, tools and rewards.

A rollout's session holds one environment. An agent that knows the interface asks for its first observations and tools
with `reset` and hands in the calls of each model reply with `step`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pydantic

import gymq

# An `episode.Episode`, or None in a session that was never seeded. Its module cannot be imported without Aviary.
State = Any


class TaskRow(gymq.Row):
    task_idx: pydantic.NonNegativeInt
    responses_create_params: dict[str, Any] = pydantic.Field(default_factory=lambda: {"input": []})


class FunctionCall(pydantic.BaseModel):
    call_id: str
    name: str
    arguments: str  # JSON


class Environments(gymq.Resources[TaskRow]):
    """The sum of the rewards that the environment gave for the rollout's steps."""

    reward_range = (-1000.0, 1000.0)  # the library's environments stay far within
    needs = frozenset({"network"})
    replayable = True

    class Options(gymq.WorkerOptions):
        env: Literal["gsm8k", "hotpotqa"]
        problems: list[dict[str, Any]] | None = None  # instead of the environment's own data set
        split: str = "train"  # of that data set
        env_config: dict[str, Any] = pydantic.Field(default_factory=dict)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pages: dict[str, str] | None = None  # what searches find; filled by whoever has no network

    async def start(self) -> None:
        try:
            from workers.resources.aviary import environments, episode
        except ModuleNotFoundError as error:
            raise gymq.OptionsError(f'{error.name} is not installed: pip install "gymq[aviary]"') from None
        self._episode = episode.Episode
        options = self.options
        pages = environments.PageCache() if self.pages is None else self.pages
        arguments = (options.env, options.problems, options.split, options.env_config, pages)
        try:
            self._tasks = await asyncio.to_thread(environments.task_set, *arguments)
        except pydantic.ValidationError as error:
            problem = error.errors()[0]
            path = ".".join(map(str, problem["loc"]))
            raise gymq.OptionsError(f"{self.name}: {error.title}: {path}: {problem['msg']}") from None

    async def open(self, row: TaskRow) -> State:
        if row.task_idx >= len(self._tasks):
            raise gymq.InvalidTask(f"task_idx is {row.task_idx}, but there are {len(self._tasks)} tasks")
        episode = self._episode(f"task_{row.task_idx}", self._tasks.get_new_env_by_idx(row.task_idx))
        await episode.reset()
        return episode

    def open_unseeded(self) -> None:
        return None

    async def close(self, state: State) -> None:
        if state is not None:
            await state.close()

    @gymq.tool
    async def reset(self, state: State) -> dict[str, Any]:
        """For the agent: the environment's id, its first observations and its tools."""
        episode = _open_episode(state, None)
        return {"env_id": episode.env_id, **episode.first}

    @gymq.tool
    async def step(self, state: State, action: list[FunctionCall], env_id: str | None = None) -> dict[str, Any]:
        """For the agent: run the calls of one model reply; the observations, the reward, and whether it is over."""
        return await _open_episode(state, env_id).step(action)

    async def call_tool(self, state: State, name: str, arguments: Any) -> Any:
        """Run one call of the interface. `close` is among them; the session's end closes the environment too."""
        if name != "close":
            return await super().call_tool(state, name, arguments)
        env_id = arguments.get("env_id") if isinstance(arguments, dict) else None
        if not _is_of(state, env_id) or state.closed:
            return {"message": "there is no such environment", "success": False}
        await state.close()
        return {"message": "closed", "success": True}

    async def verify(self, request: gymq.VerifyRequest[TaskRow], state: State) -> gymq.Verdict:
        # In an environment that was never begun nothing was earned.
        return gymq.Verdict(state.reward if _is_of(state, request.response.get("env_id")) else 0.0)


def _is_of(state: State, env_id: str | None) -> bool:
    """Whether the session has an environment and, if an id is given, just that."""
    return state is not None and env_id in (None, state.env_id)


def _open_episode(state: State, env_id: str | None) -> State:
    if not _is_of(state, env_id) or state.closed:
        raise gymq.ToolError(400, "the session has no such environment, or it was closed")
    return state
