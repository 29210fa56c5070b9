"""swe_agents: any coding agent that is a program, in the container of a repository, until it leaves a changed tree."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Literal, get_args

import pydantic
from gymq.workers.agents.mini_swe_agent.instance import ImageTemplate
from gymq.workers.agents.program_agent.harnesses import HarnessName
from gymq.workers.agents.program_agent.installed_harness import container_program
from gymq.workers.agents.swe_agents.instance import Instance, read, without_instance

import gymq
from gymq import responses
from gymq.agent import OwnVerifier
from gymq.ext.containers import Apptainer, Docker, network_address
from gymq.ext.gateway import Capture, Gateway
from gymq.protocol.messages import FailureClass
from gymq.sandbox import ProgramResult, Workspace

PROBLEM = "/tmp/problem_statement.md"
LOOPBACK = "127.0.0.1"
MEMORY_LIMIT = pydantic.AliasChoices("memory_limit_mb", "apptainer_memory_limit_mb")  # the second is NeMo Gym's
DIFF = "cd {repository} && git add -A && git -c core.fileMode=false diff --cached {base} --"


class SweAgents(gymq.Agent):
    """A coding agent of your choice in a container; the tests decide on what it changed."""

    class Options(gymq.AgentOptions):
        resources_server: gymq.Reference
        model_server: gymq.Reference
        agent_command: str = ""  # a script of the shell
        harness: HarnessName | None = None  # a coding agent by its name, instead of `agent_command`
        agent_framework: str | None = None  # of NeMo Gym; one that `harness` knows is that, in the version pinned here
        agent_folders: dict[str, str] = pydantic.Field(default_factory=dict)  # seen in the container: of this machine
        agent_env: dict[str, str] = pydantic.Field(default_factory=dict)
        agent_max_turns: pydantic.PositiveInt = 100  # model calls
        provider: Literal["docker", "apptainer"] = "docker"
        container_formatter: ImageTemplate | None = None  # of image names, with {instance_id} in it
        repository: str = "/testbed"  # in the image
        swebench_agent_timeout: pydantic.PositiveFloat = 2700.0  # seconds for the command
        swebench_tests_timeout: pydantic.PositiveInt | None = None  # seconds for the tests, of its own verifier
        memory_limit_mb: pydantic.PositiveInt = pydantic.Field(32768, validation_alias=MEMORY_LIMIT)
        concurrency: pydantic.PositiveInt = 16  # rollouts at a time in one process; each has a container
        verify_golden_patch: bool = False  # submit the reference patch instead of asking the model
        verify_timeout_s: pydantic.PositiveFloat = 7200.0  # an image may have to be pulled

        @pydantic.model_validator(mode="after")
        def _check_command(self) -> SweAgents.Options:
            if not self.agent_command and self.harness is None:
                self.harness = next((name for name in get_args(HarnessName) if name == self.agent_framework), None)
            if bool(self.agent_command) == (self.harness is not None):
                text = "set either `agent_command`, a script, or `harness`, the name of a coding agent"
                if self.agent_framework is not None and self.harness is None:
                    known = ", ".join(get_args(HarnessName))
                    text = f"agent_framework {self.agent_framework} is not packaged here; {text} ({known})"
                raise ValueError(text)
            return self

    @classmethod
    def own_verifier(cls, options: Mapping[str, Any]) -> OwnVerifier:
        """Return the tests of SWE-bench, with the time that NeMo Gym gives to them as an option of the agent."""
        given = options.get("swebench_tests_timeout")
        return OwnVerifier("mini_swe_agent", {} if given is None else {"eval_timeout": given})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_concurrency = self.options.concurrency

    async def start(self) -> None:
        self._program = await container_program(self.options.harness, self.options.agent_command, PROBLEM)
        self._open = AsyncExitStack()
        host = await network_address() if self.options.provider == "docker" else LOOPBACK
        self._gateway = await self._open.enter_async_context(Gateway(host))

    async def stop(self) -> None:
        await self._open.aclose()

    async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
        instance, row = read(rollout.row, rollout.params.get("metadata") or {})
        if self.options.verify_golden_patch:
            patch: str = instance.patch
            said: dict[str, Any] = {}
            rollout.response = instance.reference()
        else:
            patch, said = await self._solve(rollout, instance)
        if self.options.skip_verification:
            return gymq.Verdict(self.options.skip_verification_reward, verification_skipped=True, **said)
        async with rollout.session() as session:
            verdict = await session.verify(rollout.response, row=row)
        return gymq.Verdict(verdict.reward, **verdict.fields | said | self._labels(patch, verdict, said))

    async def _solve(self, rollout: gymq.Rollout, instance: Instance) -> tuple[str, dict[str, Any]]:
        """Return the patch that the program leaves, and the details of its run."""
        params, rollout.params = rollout.params, without_instance(rollout.params)
        capture = Capture(rollout, self.options.agent_max_turns)
        async with (
            self._gateway.admit(rollout.id, capture.ask) as admission,
            self._container(rollout, instance) as place,
        ):
            await place.write(PROBLEM, instance.problem_statement.encode())
            env = {
                **admission.env,
                **self._program.env,
                "PROBLEM_STATEMENT": PROBLEM,
                "INSTANCE_ID": instance.instance_id,
                **self.options.agent_env,
            }
            wall_s = capture.time_for_program(self.options.swebench_agent_timeout)
            script = f"cd {shlex.quote(self.options.repository)} && {self._program.script}"
            ended = await capture.watch(place.run(script, wall_s=wall_s, env=env))
            patch = await self._patch(place, instance)
        error = _error(ended, capture)
        if (error == "other" and not patch) or not capture.calls:
            calls = f"{len(capture.calls)} model calls"
            text = f"the agent's program {ended.how} after {calls} and without a patch: {ended.last_words}"
            raise gymq.RolloutError(FailureClass.AGENT_FAILED, text)
        found = capture.conversation()
        rollout.output = [*found.output, responses.user_message(patch)]
        fields = found.fields(params)
        return patch, fields | {"agent_error": error, "mask_sample": found.masked}

    def _container(self, rollout: gymq.Rollout, instance: Instance) -> Workspace:
        kind = Docker if self.options.provider == "docker" else Apptainer
        return kind(
            instance.image_of(self.options.container_formatter),
            life_s=rollout.time_left() + 60.0,
            memory_mib=self.options.memory_limit_mb,
            folders={**self.options.agent_folders, **self._program.folders},
        )

    async def _patch(self, place: Workspace, instance: Instance) -> str:
        """Return the changes since the base commit."""
        script = DIFF.format(repository=shlex.quote(self.options.repository), base=shlex.quote(instance.base_commit))
        ended = await place.run(script, wall_s=120.0)
        if ended.exit_status != 0:
            text = ended.stderr.decode(errors="replace").strip()[-300:]
            raise gymq.ComponentFailed(f"no patch of {instance.instance_id}: {text}")
        return ended.stdout.decode(errors="replace")

    def _labels(self, patch: str, verdict: gymq.Verdict, said: dict[str, Any]) -> dict[str, Any]:
        """Return what trainers read. A sample whose end says nothing about its actions is masked."""
        resolved = verdict.reward == 1.0
        cut = said.get("agent_error")
        timed_out = bool(verdict.fields.get("timed_out"))
        out_of_room = cut in ("max_iteration", "context_window")
        masked = said.get("mask_sample") or timed_out or cut in ("timeout", "memory") or (resolved and out_of_room)
        return {
            "resolved": resolved,
            "patch_exists": bool(patch.strip()),
            "patch_successfully_applied": verdict.fields.get("metadata") is not None,
            "mask_sample": bool(masked),
        }


def _error(ended: ProgramResult, capture: Capture) -> str | None:
    """Return what cut the program short; None if it came to its own end."""
    if ended.limit is not None:
        return "timeout" if ended.limit == "time" else "memory"
    if capture.limit_reached:
        return "max_iteration"
    if capture.context_is_full:
        return "context_window"
    return None if ended.exit_status == 0 else "other"
