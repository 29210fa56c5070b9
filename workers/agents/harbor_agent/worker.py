"""harbor_agent: tasks in Harbor's format: an instruction and a container; tests in there give the reward."""

from __future__ import annotations

import re
import shlex
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal

import msgspec
import pydantic
from gymq.workers.agents.harbor_agent.task import Task
from gymq.workers.agents.program_agent.harnesses import HarnessName
from gymq.workers.agents.program_agent.installed_harness import container_program

import gymq
from gymq import responses
from gymq.ext.containers import NETWORK, Docker, network_address
from gymq.ext.gateway import Capture, Gateway
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import FailureClass
from gymq.sandbox import Workspace

INSTRUCTION = "/tmp/instruction.md"
DEFAULT_TIMEOUT_S = 600.0
PROGRAM_MISSING = "set `harness`, the name of a coding agent, or `agent_command`, or harbor_agent_name to oracle"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


Seconds = pydantic.PositiveFloat


def _limit(name: str) -> Any:
    """Return the field of a time limit, which later releases of NeMo Gym name without the unit."""
    return pydantic.Field(None, validation_alias=pydantic.AliasChoices(f"{name}_sec", name))


class DataSet(pydantic.BaseModel):
    """A folder of tasks."""

    model_config = pydantic.ConfigDict(extra="forbid")

    local_dataset_path: Path
    workdir: str | None = None  # where the agent begins; default: the image's own

    @pydantic.model_validator(mode="before")
    @classmethod
    def _of_the_registry(cls, given: Any) -> Any:
        if isinstance(given, dict) and "dataset_name" in given and "local_dataset_path" not in given:
            name = given["dataset_name"]
            text = f"dataset_name {name}: gymq does not download from Harbor's registry; fetch it with Harbor"
            raise ValueError(f"{text}, and name its folder as `local_dataset_path`")
        return given


class Row(msgspec.Struct):
    """What the agent reads of a row."""

    instance_id: str  # <data set>::<task>


class HarborAgent(gymq.Agent):
    """A program of your choice in a task's container; the task's tests give the reward."""

    class Options(gymq.AgentOptions):
        model_server: gymq.Reference
        harbor_datasets: dict[str, DataSet]
        harbor_agent_name: Literal["command", "oracle"] | None = None  # oracle: the task's own solution
        agent_command: str = ""  # a script of the shell
        harness: HarnessName | None = None  # a coding agent by its name, instead of `agent_command`
        agent_folders: dict[str, str] = pydantic.Field(default_factory=dict)  # seen in the container: of this machine
        agent_env: dict[str, str] = pydantic.Field(default_factory=dict)
        agent_max_turns: pydantic.PositiveInt = 100  # model calls
        harbor_agent_override_timeout_sec: Seconds | None = _limit(
            "harbor_agent_override_timeout"
        )  # instead of the task's
        harbor_agent_max_timeout_sec: Seconds | None = _limit("harbor_agent_max_timeout")  # at most
        harbor_verifier_override_timeout_sec: Seconds | None = _limit("harbor_verifier_override_timeout")
        harbor_verifier_max_timeout_sec: Seconds | None = _limit("harbor_verifier_max_timeout")
        harbor_timeout_multiplier: pydantic.PositiveFloat | None = None  # default: 1
        concurrency: pydantic.PositiveInt = 16  # rollouts at a time in one process; each has a container

        @pydantic.model_validator(mode="before")
        @classmethod
        def _check_class(cls, given: Any) -> Any:
            """Refuse a class of NeMo Gym's checkout where nothing takes its place."""
            if not isinstance(given, dict) or given.get("harness") or given.get("agent_command"):
                return given
            if path := given.get("harbor_agent_import_path"):
                raise ValueError(f"harbor_agent_import_path {path} is not imported here; {PROGRAM_MISSING}")
            return given

        @pydantic.model_validator(mode="after")
        def _check_command(self) -> HarborAgent.Options:
            if self.agent_command and self.harness is not None:
                raise ValueError("set either `agent_command`, a script, or `harness`, the name of a coding agent")
            if self.harbor_agent_name != "oracle" and not self.agent_command and self.harness is None:
                raise ValueError(PROGRAM_MISSING)
            return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_concurrency = self.options.concurrency

    async def start(self) -> None:
        self._program = await container_program(self.options.harness, self.options.agent_command, INSTRUCTION)
        self._open = AsyncExitStack()
        self._gateway = await self._open.enter_async_context(Gateway(await network_address()))

    async def stop(self) -> None:
        await self._open.aclose()

    async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
        task, data_set = self._task(rollout.row)
        environment = task.config.environment
        container = Docker(
            await task.image(),
            network="bridge" if environment.allow_internet else NETWORK,
            life_s=rollout.time_left() + 60.0,
            memory_mib=environment.memory_mb,
            folders={**self.options.agent_folders, **self._program.folders},
        )
        async with container as place:
            if self.options.harbor_agent_name == "oracle":
                said = await self._solution(rollout, task, place)
            else:
                said = await self._run_program(rollout, task, data_set, place)
            if self.options.skip_verification:
                return gymq.Verdict(self.options.skip_verification_reward, verification_skipped=True, **said)
            limit_s = self._timeout_s("verifier", task.config.verifier.timeout_sec)
            rewards = await task.verify(place, min(limit_s, rollout.time_left()))
        return gymq.Verdict(rewards.get("reward", next(iter(rewards.values()))), rewards=rewards, **said)

    def _task(self, row: bytes) -> tuple[Task, DataSet]:
        try:
            alias, _, name = msgspec.json.decode(row, type=Row).instance_id.partition("::")
        except UNDECODABLE as error:
            raise gymq.InvalidTask(f"row: {error}") from None
        data_set = self.options.harbor_datasets.get(alias)
        if data_set is None or not _NAME.fullmatch(name):
            known = ", ".join(self.options.harbor_datasets)
            raise gymq.InvalidTask(f"instance_id: expected <data set>::<task>; data sets are {known}")
        return Task(data_set.local_dataset_path / name), data_set

    async def _run_program(
        self, rollout: gymq.Rollout, task: Task, data_set: DataSet, place: Workspace
    ) -> dict[str, Any]:
        capture = Capture(rollout, self.options.agent_max_turns)
        async with self._gateway.admit(rollout.id, capture.ask) as admission:
            await place.write(INSTRUCTION, task.instruction.encode())
            env = {
                **admission.env,
                **self._program.env,
                "INSTRUCTION": INSTRUCTION,
                **task.config.agent.env,
                **self.options.agent_env,
            }
            script = self._program.script
            if data_set.workdir is not None:
                script = f"cd {shlex.quote(data_set.workdir)} && {script}"
            wall_s = capture.time_for_program(self._timeout_s("agent", task.config.agent.timeout_sec))
            ended = await capture.watch(place.run(script, wall_s=wall_s, env=env))
        found = capture.conversation()
        rollout.output = list(found.output)
        return found.fields(rollout.params) | {
            "context_length_exceeded_error": float(capture.context_is_full),
            "agent_timeout_error": float(ended.limit == "time"),
            "memory_limit_exceeded_error": float(ended.limit == "memory"),
            "mask_sample": found.masked or ended.limit is not None,
        }

    async def _solution(self, rollout: gymq.Rollout, task: Task, place: Workspace) -> dict[str, Any]:
        await task.copy("solution", place)
        wall_s = min(self._timeout_s("agent", task.config.agent.timeout_sec), rollout.time_left())
        ended = await place.run("bash /solution/solve.sh", wall_s=wall_s)
        if ended.exit_status != 0:
            text = f"the solution of {task.folder.name} {ended.report}"
            raise gymq.RolloutError(FailureClass.AGENT_FAILED, text, retryable=False)
        rollout.response = responses.response_without_model("oracle", [])
        return {}

    def _timeout_s(self, phase: Literal["agent", "verifier"], of_the_task: float | None) -> float:
        override = getattr(self.options, f"harbor_{phase}_override_timeout_sec")
        most = getattr(self.options, f"harbor_{phase}_max_timeout_sec")
        seconds = override or of_the_task or DEFAULT_TIMEOUT_S
        # The multiplier comes last, as in Harbor.
        return min(seconds, most or seconds) * (self.options.harbor_timeout_multiplier or 1.0)
