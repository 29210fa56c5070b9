"""Environments of gymq as a taskset of verifiers 0.4, https://github.com/PrimeIntellect-ai/verifiers, in its process.

No cluster is needed: an agent of gymq runs in the process of verifiers' evaluation, or of its environment server, and
asks verifiers' endpoint, so that verifiers' trace has the calls. The environment gives the reward. verifiers finds a
taskset as a module at the top: `examples/trainers/prime_rl/gymq_env.py` is that of these classes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import verifiers.v1 as vf
from verifiers.v1.dialects import parse_message

from gymq import responses
from gymq.agent import Agent
from gymq.data.datasets import Dataset
from gymq.data.jsonl import numbered_lines
from gymq.data.rows import PARAMS, RowError
from gymq.data.short_rows import whole_row
from gymq.errors import GymqError, UsageError
from gymq.execution.loading import registry
from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.ext.verifiers.endpoint import ask, asking
from gymq.failures import RolloutError
from gymq.protocol.messages import Stage
from gymq.protocol.tokens import to_json
from gymq.testing.agent_harness import AgentHarness

OURS = "gymq"  # in `info` of a trace: the verdict
PLAYED_BY = ("environment", "options", "agent", "agent_options")  # of a task, as the taskset sets them


class EnvironmentData(vf.TaskData):
    """A row, and what plays it."""

    row: str
    environment: str
    options: dict[str, Any]
    agent: str
    agent_options: dict[str, Any]


class EnvironmentTask(vf.Task[EnvironmentData]):
    """A task that an environment of gymq scores."""

    @vf.reward
    async def verdict(self, trace: vf.Trace) -> float:
        about = trace.info.get(OURS, {"failure": "it was not played by the taskset's own harness"})
        if "reward" not in about:
            raise ValueError(f"the rollout has no verdict: {about['failure']}")
        return float(about["reward"])

    @vf.metric
    async def numbers(self, trace: vf.Trace) -> dict[str, float]:
        fields = {name: value for name, value in trace.info.get(OURS, {}).items() if name != "reward"}
        return {name: float(value) for name, value in fields.items() if isinstance(value, bool | int | float)}


class EnvironmentTasksetConfig(vf.TasksetConfig):
    """What `--env.taskset.*` sets. The command asks for a class whose fields all have defaults."""

    rows: Path = Path()
    """Data set of gymq, as `gymq collect --rows` takes it; required."""
    environment: str = ""
    """Environment of gymq: a shipped one's name, a module, or a file; required."""
    options: dict[str, Any] = pydantic.Field(default_factory=dict)
    """Options of the environment."""
    agent: str = ""
    """Agent of gymq that plays the rows, named like the environment; empty: that of the environment's class."""
    agent_options: dict[str, Any] = pydantic.Field(default_factory=dict)
    """Options of the agent."""


class EnvironmentTaskset(vf.Taskset[EnvironmentTask, EnvironmentTasksetConfig]):
    """The rows of a file as tasks."""

    def load(self) -> Iterator[EnvironmentTask]:
        """Yield the tasks.

        Raises:
            RowError: a line is not a row; the message names it.
            UsageError: an option is missing.
        """
        config = self.config
        for name in ("rows", "environment"):
            if getattr(config, name) in ("", Path()):
                raise UsageError(f"the taskset needs `{name}`: --env.taskset.{name}")
        played_by = {name: getattr(config, name) for name in PLAYED_BY}
        for _, where, line in numbered_lines(Dataset(config.rows)):
            row, prompt = _row(line, where)
            yield EnvironmentTask(EnvironmentData(prompt=prompt, row=row, **played_by), config.task)


class EnvironmentHarness(vf.Harness[vf.HarnessConfig]):
    """Runs the agent of a task in this process."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = False
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    def __init__(self, config: vf.HarnessConfig) -> None:
        super().__init__(config)
        self._players: dict[str, AgentHarness] = {}
        self._starting = asyncio.Lock()

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: EnvironmentData,
    ) -> vf.ProgramResult:
        """Play a task, and keep the verdict in the trace."""
        try:
            player = await self._player(data)
            async with asking(endpoint, secret, ctx.model, trace):
                rollout_id = f"verifiers/{data.idx or 0}/{trace.id}"
                # verifiers ends a rollout before that, by time limits of its own.
                verdict, _ = await player.run(json.loads(data.row), rollout_id=rollout_id, timeout_s=24 * 3600.0)
        except RolloutError as error:
            kind = vf.TaskError if error.stage == Stage.VERIFY else vf.HarnessError
            text = f"{error.failure_class}: {error.message}"
            trace.info[OURS] = {"failure": text}  # of a rollout that verifiers has ended, only this remains
            raise kind(text) from error
        except GymqError as error:  # the environment or the agent cannot be started
            raise vf.HarnessError(str(error)) from error
        fields = {name: value for name, value in verdict.fields.items() if name != PARAMS}
        trace.info[OURS] = msgspec.json.decode(to_json({**fields, "reward": verdict.reward}))
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    async def stop(self) -> None:
        """Stop the environments."""
        while self._players:
            _, player = self._players.popitem()
            await player.__aexit__(None, None, None)

    async def _player(self, data: EnvironmentData) -> AgentHarness:
        """Return what plays a task; all tasks of a taskset share it.

        Raises:
            GymqError: there is no such worker, or it cannot start.
        """
        key = json.dumps([getattr(data, name) for name in PLAYED_BY], sort_keys=True)
        async with self._starting:
            if key not in self._players:
                environment = registry.find_class("resources", data.environment)
                agent = registry.find_class("agents", data.agent or environment.played_by)
                assert issubclass(agent, Agent)
                player = AgentHarness(agent, environment, ask, data.agent_options, resources_options=data.options)
                self._players[key] = await player.__aenter__()
            return self._players[key]


class EnvironmentEnvConfig(vf.EnvConfig):
    """What `--env.*` sets; the agent runs in this process, and needs no box elsewhere."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class EnvironmentEnv(vf.Env[EnvironmentEnvConfig]):
    """One agent plays; the environments end with the evaluation."""

    async def run(self, task: EnvironmentTask, agents: vf.Agents) -> None:
        await agents.agent.run(task)

    async def stop(self) -> None:
        for harness in self._harnesses.values():
            if isinstance(harness, EnvironmentHarness):
                await harness.stop()


def _row(line: bytes, where: str) -> tuple[str, str | list[Any]]:
    """Return the text of a row, and its prompt as text or as messages of verifiers.

    Raises:
        RowError: the line is not a row.
    """
    try:
        row = whole_row(line)
    except GymqError as error:
        raise RowError(f"{where}: {error}") from None
    try:
        asked = responses.row_params(msgspec.json.decode(row)[PARAMS])
        chat = responses_to_chat({name: asked[name] for name in ("input", "instructions") if name in asked})
    except GymqError as error:
        raise RowError(f"{where}: {PARAMS}: {error}") from None
    if isinstance(asked["input"], str) and len(chat["messages"]) == 1:
        return row.decode(), str(asked["input"])
    return row.decode(), [parse_message(message) for message in chat["messages"]]
