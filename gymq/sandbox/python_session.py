"""A Python interpreter in a sandbox that keeps its names from one piece of code to the next."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path

import msgspec

from gymq.failures import ComponentFailed
from gymq.protocol.decoding import UNDECODABLE
from gymq.sandbox.interface import MIB, Limits, Program, ProgramSession, Sandbox, SessionEnded

_INTERPRETER = (Path(__file__).parent / "interpreter.py").read_bytes()


class Step(msgspec.Struct, frozen=True):
    """The result of one piece of code."""

    success: bool
    stdout: str
    stderr: str
    error: str | None  # text of the exception
    traceback: str | None
    result: str | None  # `str` of the last line's value, if that line is an expression other than `print(...)`
    shown: str | None  # `repr` of the last expression's value if it has one, as notebooks show it
    timed_out: bool
    names_lost: bool = False  # the interpreter ended, and the next step begins with a new one


class PythonSession:
    """Runs code in one interpreter, which is started at the first step and again after it was lost.

    Args:
        limits: of the interpreter; those of time and output are for single programs and do not count.
    """

    def __init__(self, sandbox: Sandbox, limits: Limits) -> None:
        self._sandbox = sandbox
        # An answer has six texts of `interpreter.MAX_TEXT` characters; JSON takes up to 12 bytes for each.
        self._limits = dataclasses.replace(limits, time_s=None, output_bytes=8 * MIB)
        self._session: ProgramSession | None = None
        self._lock = asyncio.Lock()

    async def run(self, code: str, timeout_s: float) -> Step:
        """Run one piece of code; steps of a session run one after the other.

        Args:
            timeout_s: seconds that it may take, of its own time where the provider can measure it.

        Raises:
            ComponentFailed: no interpreter could be started, or the machine did not let it run.
        """
        async with self._lock:
            if self._session is None:
                self._session = await self._started()
            session, self._session = self._session, None
            limit_s = None if session.warns else timeout_s  # of the interpreter itself, unless the session warns it
            request = {"code": code.encode(errors="replace").decode(), "timeout_s": limit_s}
            try:
                # In a last second code may notice that its time is over; after it the interpreter is replaced.
                answer = await session.exchange(json.dumps(request).encode(), timeout_s + 1.0)
                step = msgspec.json.decode(answer, type=Step)
            except TimeoutError:
                return _lost("out of time", timed_out=True)
            except (SessionEnded, *UNDECODABLE):
                await session.close()
                return _lost("the interpreter ended", timed_out=False)
            self._session = session
            return step

    async def close(self) -> None:
        """End the interpreter. May be repeated."""
        async with self._lock:
            session, self._session = self._session, None
            if session is not None:
                await session.close()

    async def _started(self) -> ProgramSession:
        """Start an interpreter and wait for its first answer, so that the first step's time excludes the start."""
        program = Program((self._sandbox.python, "-I", "interpreter.py"), files={"interpreter.py": _INTERPRETER})
        session = await self._sandbox.open(program, self._limits)
        try:
            await session.exchange(b'{"code": "", "timeout_s": null}', 30.0)
        except TimeoutError:
            raise ComponentFailed("a Python interpreter in the sandbox did not answer") from None
        except SessionEnded as error:
            raise ComponentFailed(f"a Python interpreter in the sandbox did not start: {error}") from None
        return session


def _lost(error: str, *, timed_out: bool) -> Step:
    return Step(False, "", "", error, None, None, None, timed_out, names_lost=True)
