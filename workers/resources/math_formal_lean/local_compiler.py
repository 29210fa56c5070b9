"""Compiling a Lean program on this machine, in gymq's sandbox: by `lean`, or by the build of npm for WebAssembly."""

from __future__ import annotations

import dataclasses
import os
import re
import signal

import pydantic
from gymq.workers.resources.math_formal_lean.compiler import (
    COMPLETED,
    FAILED,
    MAX_OUTPUT_CHARACTERS,
    TIMEOUT,
    CompilerOutput,
)

import gymq
from gymq.sandbox import GIB, Limits, Program, ProgramResult, Sandbox, SandboxOptions

PROGRAM = "program.lean"
INSIDE = "/home/lean"  # where a program in the sandbox sees the compiler's folder
START_S = 600.0  # for the compiler to say its version: one in WebAssembly is translated first

# The build for WebAssembly reports on itself, first with the beginning of the program. A comment in front of it keeps
# the program out of that report: what stands there is taken for what the program printed.
PADDING = f"/- {'x' * 250} -/ "
_REPORT = re.compile(r"^(?:\[DEBUG:[^\n]*|  mainModule\? = [a-z]+|  - /[^\n]*\.olean)\n", re.MULTILINE)

_WHAT_IT_SEES = "a sandbox sees what is below /usr, and the option's `folder` as /home/lean"

# Lean maps whole libraries into memory, and starts a thread for each core.
_LIMITS = Limits(memory_bytes=32 * GIB, processes=256, disk_bytes=4 * GIB, output_bytes=4 * MAX_OUTPUT_CHARACTERS)


class LocalLean(pydantic.BaseModel):
    """A Lean compiler of this machine.

    Attributes:
        command: the compiler and its arguments; the file is added. What lies below /usr is seen in the sandbox.
        folder: a folder of this machine that the sandbox sees as /home/lean, as a copy for each program.
        axioms: whether the compiler has `#print axioms`. Otherwise words are refused by which a proof gets some.
    """

    model_config = pydantic.ConfigDict(extra="forbid")

    command: list[str] = pydantic.Field(min_length=1)
    folder: str | None = None
    axioms: bool = True


class Local:
    """A compiler of this machine. Each program has a sandbox of its own, without network."""

    def __init__(self, sandbox: Sandbox, options: SandboxOptions, lean: LocalLean) -> None:
        self._sandbox = sandbox
        self._limits = options.limits(_LIMITS)
        self._command = tuple(lean.command)
        self._folders = {} if lean.folder is None else {INSIDE: os.path.abspath(lean.folder)}

    async def check(self) -> None:
        """Ask the compiler for its version: one that does not run must not cost a proof its reward.

        Raises:
            OptionsError: it does not say one.
        """
        try:
            done = await self._run("--version", time_s=START_S)
        except gymq.ComponentFailed as error:
            raise gymq.OptionsError(f"local_lean: {error.message}; {_WHAT_IT_SEES}") from None
        if b"Lean (version" not in done.stdout:  # the build for WebAssembly ends with any status then
            raise gymq.OptionsError(f"local_lean: `{' '.join(self._command)} --version` {done.report}; {_WHAT_IT_SEES}")

    async def compile(self, program: str, timeout_s: float) -> CompilerOutput:
        """See `compiler.Compiler`. The time is that of the compiler, whatever else this machine does.

        Raises:
            ComponentFailed: it did not run, or was killed from outside.
        """
        padded = PADDING + program
        done = await self._run(PROGRAM, time_s=timeout_s, files={PROGRAM: padded.encode(errors="replace")})
        stdout, stderr = (_REPORT.sub("", text.decode(errors="replace")) for text in (done.stdout, done.stderr))
        if done.limit == "time":
            return CompilerOutput(TIMEOUT, stdout, stderr)
        if done.limit is not None:
            return CompilerOutput(f"{done.limit}_limit", stdout, stderr)
        if done.exit_status == -signal.SIGKILL:
            raise gymq.ComponentFailed("the Lean compiler was killed by something else than its limits")
        return CompilerOutput(COMPLETED if done.exit_status == 0 else FAILED, stdout, stderr)

    async def _run(self, argument: str, *, time_s: float, files: dict[str, bytes] | None = None) -> ProgramResult:
        limits = dataclasses.replace(self._limits, time_s=time_s)
        return await self._sandbox.run(
            Program((*self._command, argument), files=files or {}, folders=self._folders), limits
        )
