"""aviary: environments of Aviary (Narayanan et al., 2024), which bring their own prompts, tools and rewards.

A rollout's session holds one environment. An agent that knows the interface asks for its first observations and tools
with `reset` and hands in the calls of each model reply with `step`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Self, get_args

import pydantic
from gymq.workers.resources.aviary import problems

import gymq
from gymq.authoring import check_installed, importing

# An `episode.Episode`, or None in a session that was never seeded. Its module cannot be imported without Aviary.
State = Any


Env = Literal["gsm8k", "hotpotqa", "client"]
_ENVS = get_args(Env)
_NOT_OFFERED = ("notebook", "hypotest")  # of Aviary too, with containers of their own
_AVAILABLE = f"`env` is one of {', '.join(_ENVS)}"


class TaskRow(gymq.Row):
    task_idx: pydantic.NonNegativeInt
    responses_create_params: dict[str, Any] = pydantic.Field(default_factory=lambda: {"input": []})


class FunctionCall(pydantic.BaseModel):
    call_id: str
    name: str
    arguments: str  # JSON


class Environments(gymq.Resources[TaskRow, State]):
    """The sum of the rewards that the environment gave for the rollout's steps."""

    reward_range = (-1000.0, 1000.0)  # the library's environments stay far within
    needs = frozenset({"network"})
    replayable = True

    class Options(gymq.WorkerOptions):
        env: Env
        problems: list[dict[str, Any]] | None = None  # instead of the environment's own data set
        split: str = "train"  # of that data set
        env_config: dict[str, Any] = pydantic.Field(default_factory=dict)
        server_url: str | None = None  # of the environments, for `client`
        request_timeout: pydantic.PositiveFloat = 300.0  # seconds for one request to that server
        api_key: pydantic.SecretStr | None = None

        @pydantic.model_validator(mode="before")
        @classmethod
        def _env_of_entrypoint(cls, given: Any) -> Any:
            """In NeMo Gym the entry point selects the environment: `gsm8k_app.py`."""
            if not isinstance(given, dict) or "env" in given:
                return given
            env = str(given.get("entrypoint")).removesuffix("_app.py")
            if env in _NOT_OFFERED:
                text = f"entrypoint {given['entrypoint']}: its environment needs containers that gymq does not have"
                raise ValueError(f"{text}; {_AVAILABLE}")
            return {**given, "env": env} if env in _ENVS else given

        @pydantic.model_validator(mode="after")
        def _check_server(self) -> Self:
            if (self.env == "client") != (self.server_url is not None):
                raise ValueError("server_url must name the server of the env `client`, and is not allowed for others")
            if self.env == "client" and self.problems is not None:
                raise ValueError("problems are for the other envs: the server of `client` has its own")
            return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pages: dict[str, str] | None = None  # results of searches; filled by tests without a network
        self._episode: Any = None
        self._tasks: Any = None

    async def start(self) -> None:
        check_installed("aviary", "aviary")
        self._loading = asyncio.Lock()
        options = self.options
        self._problems: list[Any] | None = None
        if options.problems is not None:
            problem = problems.PROBLEM_OF_ENV[options.env]
            with self._options_told():
                self._problems = pydantic.TypeAdapter(list[problem]).validate_python(options.problems)  # type: ignore[valid-type]
        # Without settings or a data set there is nothing that could be wrong, and importing Aviary takes seconds and
        # a hundred megabytes; the first session does it.
        if options.env_config or options.problems is None:
            await self._load()

    async def _load(self) -> None:
        """Import Aviary and make the tasks, unless that is done.

        Raises:
            OptionsError: a setting does not fit, or something of Aviary is not installed.
        """
        async with self._loading:
            if self._tasks is None:
                self._episode, self._tasks = await asyncio.to_thread(self._task_set)

    def _task_set(self) -> tuple[Any, Any]:
        with importing("aviary"):
            from gymq.workers.resources.aviary import environments, episode
        options = self.options
        if options.env == "client":
            assert options.server_url is not None  # as the options were checked
            key = None if options.api_key is None else options.api_key.get_secret_value()
            return episode.Episode, environments.remote_tasks(options.server_url, options.request_timeout, key)
        pages = environments.PageCache() if self.pages is None else self.pages
        with self._options_told():
            tasks = environments.task_set(options.env, self._problems, options.split, options.env_config, pages)
        return episode.Episode, tasks

    @contextmanager
    def _options_told(self) -> Iterator[None]:
        try:
            yield
        except pydantic.ValidationError as error:
            problem = error.errors()[0]
            path = ".".join(map(str, problem["loc"]))
            raise gymq.OptionsError(f"{self.name}: {error.title}: {path}: {problem['msg']}") from None

    async def open(self, row: TaskRow) -> State:
        await self._load()
        if row.task_idx >= len(self._tasks):
            raise gymq.InvalidTask(f"task_idx is {row.task_idx}, but there are {len(self._tasks)} tasks")
        episode = self._episode(f"task_{row.task_idx}", self._tasks.get_new_env_by_idx(row.task_idx))
        await episode.reset()
        return episode

    async def open_unseeded(self) -> None:
        return None

    async def close(self, state: State) -> None:
        if state is not None:
            await state.close()

    @gymq.tool(offered=False)
    async def reset(self, state: State) -> dict[str, Any]:
        """For the agent: the environment's id, its first observations and its tools."""
        episode = _open_episode(state, None)
        return {"env_id": episode.env_id, **episode.first}

    @gymq.tool(offered=False)
    async def step(self, state: State, action: list[FunctionCall], env_id: str | None = None) -> dict[str, Any]:
        """For the agent: run the calls of one model reply; the observations, the reward, and whether it is over."""
        answer: dict[str, Any] = await _open_episode(state, env_id).step(action)
        return answer

    async def call_tool(self, state: State, name: str, arguments: Any) -> Any:
        """Run one call of the interface. `close` is among them; the session's end closes the environment too."""
        if name != "close":
            return await super().call_tool(state, name, arguments)
        env_id = arguments.get("env_id") if isinstance(arguments, dict) else None
        if not _is_of(state, env_id) or state.closed:
            return {"message": "there is no such environment", "success": False}
        await state.close()
        return {"message": "closed", "success": True}

    async def verify(self, request: gymq.VerifyRequest[TaskRow, State]) -> gymq.Verdict:
        state: State = request.state  # where the environment was never begun, nothing was earned
        return gymq.Verdict(state.reward if _is_of(state, request.response.get("env_id")) else 0.0)


def _is_of(state: State, env_id: object) -> bool:
    """Return whether the session has an environment and, if an id is given, just that."""
    return state is not None and env_id in (None, state.env_id)


def _open_episode(state: State, env_id: str | None) -> State:
    if not _is_of(state, env_id) or state.closed:
        raise gymq.ToolError(400, "the session has no such environment, or it was closed")
    return state
