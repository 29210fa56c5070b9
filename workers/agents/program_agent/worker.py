"""program_agent: any program as an agent, with options only. What the model said to it is verified."""

from __future__ import annotations

import io
import os
import shlex
import sys
import tarfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal

import msgspec
import pydantic
from gymq.workers.agents.program_agent.harnesses import HarnessName
from gymq.workers.agents.program_agent.installed_harness import install

import gymq
from gymq.authoring import VariableName
from gymq.ext.containers import Apptainer, Docker, network_address
from gymq.ext.gateway import Capture, Gateway
from gymq.protocol.messages import FailureClass, Stage
from gymq.redaction import hide_options
from gymq.responses import content_text, user_contents
from gymq.sandbox import ProgramResult, Subprocess, Workspace
from gymq.workers import located

FOLDER = "/tmp/gymq-program"  # in a container
PROMPT, ROW = "prompt.txt", "row.json"
LOOPBACK = "127.0.0.1"
MAX_FILES_BYTES = 64 << 20
MAX_VARIABLE_BYTES = 96 << 10  # Linux starts no program with a variable of 128 KiB


class ProgramAgent(gymq.Agent):
    """Runs a command for each rollout; it asks the model as it would ask OpenAI or Anthropic."""

    class Options(gymq.AgentOptions):
        resources_server: gymq.Reference
        model_server: gymq.Reference
        command: str | list[str] | None = None  # the program and its arguments; a text is split as a shell would
        harness: HarnessName | None = None  # a coding agent by its name, instead of `command`
        shell: bool = False  # whether `command` is a script of the shell
        runtime: Literal["process", "docker", "apptainer"] = "process"
        image: str | None = None  # of the container
        files: list[str] = pydantic.Field(
            default_factory=list
        )  # files and folders of this machine that are copied into the working folder
        env: dict[VariableName, str] = pydantic.Field(default_factory=dict)  # further variables of the program
        row_fields: list[str] = pydantic.Field(
            default_factory=list
        )  # fields of the row that the program is given; the prompt always is
        timeout_s: pydantic.PositiveFloat | None = None  # for the program; default: what the rollout has left
        max_turns: pydantic.PositiveInt = 100  # model calls; more are refused
        memory_mib: pydantic.PositiveInt | None = None  # of the program with all that it starts; default: no limit
        concurrency: pydantic.PositiveInt = 16  # rollouts at a time in one process

        @pydantic.field_validator("command")
        @classmethod
        def _check_command(cls, command: str | list[str] | None) -> str | list[str] | None:
            if command is None:
                return None
            try:
                words = shlex.split(command) if isinstance(command, str) else command
            except ValueError as error:
                raise ValueError(f"{error}; close the quotation, or give a list of words") from None
            if not words or not words[0]:
                raise ValueError("it is empty; name the program, for example `python my_agent.py`")
            if any("\0" in word for word in words):
                raise ValueError("it holds a NUL character, which no program can be given")
            return command

        @pydantic.model_validator(mode="after")
        def _check_runtime(self) -> ProgramAgent.Options:
            if (self.command is None) == (self.harness is None):
                raise ValueError("set either `command`, a program of yours, or `harness`, the name of a coding agent")
            if self.shell and not isinstance(self.command, str):
                raise ValueError("command: with `shell: true` it is one text, the script")
            if self.runtime == "process" and self.image is not None:
                raise ValueError("image: it is for the runtimes `docker` and `apptainer`; a process has no isolation")
            if self.runtime != "process" and self.image is None:
                raise ValueError(f"image: the runtime `{self.runtime}` needs one")
            return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_concurrency = self.options.concurrency

    async def start(self) -> None:
        self._files = _packed(self.name, self.options.files)
        self._env = self._variables()
        self._harness = None if self.options.harness is None else await install(self.options.harness)
        if self._harness is not None:
            self._env = {**self._harness.env(PROMPT), **self._env}
        host = await network_address() if self.options.runtime == "docker" else LOOPBACK
        self._open = AsyncExitStack()
        self._gateway = await self._open.enter_async_context(Gateway(host))

    async def stop(self) -> None:
        await self._open.aclose()

    async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
        async with rollout.session() as session:
            report = await self._converse(rollout)
            if self.options.skip_verification:
                return gymq.Verdict(self.options.skip_verification_reward, verification_skipped=True, **report)
            verdict = await session.verify(rollout.response)
        return gymq.Verdict(verdict.reward, **verdict.fields | report)

    async def _converse(self, rollout: gymq.Rollout) -> dict[str, Any]:
        """Run the program; the fields of the verdict that are about its run."""
        prompt = "\n\n".join(map(content_text, user_contents(rollout.params))).encode(errors="replace")
        fields = self._fields(rollout.row)
        capture = Capture(rollout, self.options.max_turns)
        async with self._gateway.admit(rollout.id, capture.ask) as admission, self._place(rollout) as place:
            folder = "." if isinstance(place, Subprocess) else FOLDER
            if self._files:
                await self._unpack(place, folder)
            await place.write(f"{folder}/{PROMPT}", prompt)
            await place.write(f"{folder}/{ROW}", fields)
            env = self._env | admission.env | {"GYMQ_PROMPT_FILE": PROMPT, "GYMQ_ROW_FILE": ROW}
            if len(fields) <= MAX_VARIABLE_BYTES:
                env["GYMQ_ROW"] = fields.decode()
            wall_s = capture.time_for_program(self.options.timeout_s)
            script = f"cd {folder} && {self._script(place)}"
            ended = await capture.watch(place.run(script, wall_s=wall_s, env=env, stdin=prompt))
        found = capture.conversation()
        rollout.output = list(found.output)
        cut = _cut(ended, capture)
        if ended.exit_status != 0 and cut is None:
            text = f"the program {ended.how} after {len(capture.calls)} model calls: {ended.last_words}"
            raise gymq.RolloutError(FailureClass.AGENT_FAILED, text, stage=Stage.AGENT)
        masked = found.masked or cut is not None
        return found.fields(rollout.params) | {"program_error": cut, "mask_sample": masked}

    def _script(self, place: Workspace) -> str:
        if self._harness is not None:
            if isinstance(place, Subprocess):
                return self._harness.script(str(self._harness.folder.absolute()), f"{place.folder}/.gymq-harness-home")
            return self._harness.script_in_container()
        command = self.options.command
        assert command is not None  # as the options were checked
        if self.options.shell:
            return str(command)
        return f"exec {shlex.join(shlex.split(command) if isinstance(command, str) else command)}"

    def _place(self, rollout: gymq.Rollout) -> Workspace:
        if self.options.runtime == "process":
            # With the row, since clusters that share a machine may have runs of the same name.
            name = f"{self.name}\n{rollout.id}\n{rollout.row!r}"
            return Subprocess(memory_mib=self.options.memory_mib, name=name, resumes=rollout.has_begun)
        assert self.options.image is not None  # as the options were checked
        kind = Docker if self.options.runtime == "docker" else Apptainer
        life_s = rollout.time_left() + 60.0
        folders = {} if self._harness is None else self._harness.folders
        return kind(self.options.image, life_s=life_s, memory_mib=self.options.memory_mib, folders=folders)

    async def _unpack(self, place: Workspace, folder: str) -> None:
        ended = await place.run(f"mkdir -p {folder} && tar -xf - -C {folder}", wall_s=60.0, stdin=self._files)
        if ended.exit_status != 0:
            raise gymq.ComponentFailed(f"the files of the program cannot be copied: tar {ended.report}")

    def _variables(self) -> dict[str, str]:
        """Return the variables that the options name; nothing else of this environment is for the program."""
        variables: dict[str, str] = {}
        if self.options.runtime == "process":
            # `python` is the one that runs gymq, whose packages the program may need.
            variables["PATH"] = f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', os.defpath)}"
        for name in self.options.pass_env:
            if name not in os.environ:
                raise gymq.OptionsError(f"{self.name}: pass_env: {name} is not set here; set it, or leave it out")
            variables[name] = os.environ[name]
        variables |= self.options.env
        hide_options(variables)
        return variables

    def _fields(self, row: bytes) -> bytes:
        """Return the fields of a row that the program may read, as JSON text."""
        given = msgspec.json.decode(row, type=dict[str, msgspec.Raw])
        missing = [name for name in self.options.row_fields if name not in given]
        if missing:
            raise gymq.InvalidTask(f"row: it has no {missing[0]!r}, which the option row_fields names")
        return msgspec.json.encode({name: given[name] for name in self.options.row_fields})


def _cut(ended: ProgramResult, capture: Capture) -> str | None:
    """Return what cut the program short; None if it came to its own end."""
    if ended.limit is not None:
        return "timeout" if ended.limit == "time" else "memory"
    if capture.limit_reached:
        return "max_turns"
    return "context_window" if capture.context_is_full else None


def _packed(agent: str, files: list[str]) -> bytes:
    """Return an archive of files and folders, each under its own name; empty without any.

    Args:
        agent: the instance's name, for errors.
        files: paths, beside the configuration, from the current folder on or, for `workers/...` and `examples/...`, in
            the package.
    """
    if not files:
        return b""
    packed, names = io.BytesIO(), set[str]()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
        for file in files:
            path = located(file)
            if not path.exists():
                raise gymq.OptionsError(f"{agent}: files: {file} does not exist in {Path.cwd()}")
            name = path.resolve().name
            if name in names | {PROMPT, ROW}:
                raise gymq.OptionsError(f"{agent}: files: {file}: the name {name} is taken; rename the file")
            names.add(name)
            archive.add(path, name, filter=_anonymous)
            if packed.tell() > MAX_FILES_BYTES:
                text = f"with {file} they are larger than {MAX_FILES_BYTES >> 20} MiB; put them into the image"
                raise gymq.OptionsError(f"{agent}: files: {text}")
    return packed.getvalue()


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
