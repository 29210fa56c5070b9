"""Where a program runs: its input, its limits, its result."""

from __future__ import annotations

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from gymq.errors import GymqError
from gymq.failures import InvalidTask
from gymq.redaction import redact

LimitName = Literal["time", "memory", "file", "disk", "output"]

MIB = 1024**2
GIB = 1024**3


class SessionEnded(GymqError):
    """The program of a session ended; it has to be restarted."""


def clock_s(time_s: float) -> float:
    """Return the seconds on the clock for a program with `time_s` of its own; after them the machine was too busy."""
    return max(60.0, 6 * time_s)


@dataclass(frozen=True)
class Limits:
    """The limits of a program. A program that hits one is ended, with everything it started."""

    # Seconds of its own: computing of all processes together, and time in which none of them wants to compute. Time in
    # which it waits for processors that others use does not count. None: no limit, for sessions.
    time_s: float | None = 10.0
    memory_bytes: int = 1 * GIB  # of address space for one process; of memory, shared and in sockets too, for all
    processes: int = 32  # threads included
    file_bytes: int = 64 * MIB  # one file
    disk_bytes: int = 256 * MIB  # all files
    disk_files: int = 20_000  # files and folders
    output_bytes: int = 1 * MIB  # each of stdout and stderr


@dataclass(frozen=True)
class Program:
    """A program and what it is given.

    Args:
        argv: the program and its arguments; a name without a slash is looked up in the sandbox's PATH.
        stdin: what it reads; after that, end of file.
        files: contents by path relative to the working directory.
        folders: folders of this machine by the absolute path at which the program finds a copy of its own.
        image: container image to run in, for providers that have such.
    """

    argv: tuple[str, ...]
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    folders: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None

    def __post_init__(self) -> None:
        """Check the fields that may come from a row.

        Raises:
            InvalidTask: a path or the image is not valid.
        """
        try:
            for place in self.folders:
                check_path(place)
            for name in self.files:
                check_path(f"/{name}")
        except ValueError as error:
            raise InvalidTask(f"a program's files: {error}") from None
        if "\0" in (self.image or ""):
            raise InvalidTask(f"a program's image: {self.image!r} contains a NUL; name an image")


def check_path(path: str) -> str:
    """Return a path in a sandbox as it is.

    Raises:
        ValueError: it is not absolute, or says where it leads in more than one way.
    """
    if "\0" in path or not path.startswith("/") or posixpath.normpath(path) != path or path.startswith("//"):
        raise ValueError(f"{path!r} is not a plain absolute path; write it without `.`, `..`, NUL and surplus slashes")
    return path


@dataclass(frozen=True)
class ProgramResult:
    """The result of a program.

    Attributes:
        exit_status: negative: the signal that ended it.
        stdout: bounded, as `stderr` is.
        limit: the limit that ended it.
    """

    exit_status: int
    stdout: bytes
    stderr: bytes
    limit: LimitName | None
    seconds: float

    @property
    def how(self) -> str:
        """Return how it ended, for a sentence whose subject is the program."""
        if self.limit is not None:
            return f"was ended by its {self.limit} limit after {self.seconds:.0f} s"
        if self.exit_status < 0:
            return f"was ended by signal {-self.exit_status}"
        return f"ended with status {self.exit_status}"

    @property
    def last_words(self) -> str:
        """Return the last lines of its errors or, if it printed none, of its output; bounded, without known secrets.

        If a limit ended it, what it was doing may be in both.
        """
        output, errors = self.stdout.strip(), self.stderr.strip()
        end = errors or output
        if self.limit is not None:
            of_the_program = errors.removesuffix(b"Killed").strip()  # a shell around it writes so
            end = b"\n".join(filter(None, (output, of_the_program)))
        most = 2000
        end = end[-8 * most :]
        return redact(end.decode(errors="replace"))[-most:]

    @property
    def report(self) -> str:
        """Return how it ended and its last words, for a sentence whose subject is the program."""
        return f"{self.how}: {self.last_words}" if self.last_words else f"{self.how} and printed nothing"


class ProgramSession(ABC):
    """A program that stays, and answers one message after another."""

    warns = False  # a program that is out of time, before it is ended

    @abstractmethod
    async def exchange(self, message: bytes, timeout_s: float) -> bytes:
        """Send a message and wait for the answer.

        Args:
            timeout_s: seconds that the answer may take, of the program's own time where the provider can measure it. A
                second before the end the program gets SIGALRM, if `warns`.

        If it fails for any reason, the session is closed.

        Raises:
            TimeoutError: there was none in time.
            ComponentFailed: the machine did not let it run.
            SessionEnded: the program ended, or its output is not an answer to this message.
        """

    @abstractmethod
    async def close(self) -> None:
        """End the program and all it started. May be repeated."""


class Runtime(ABC):
    """A place where programs run; use it with `async with`, or `start` and `stop`."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @abstractmethod
    async def start(self) -> None:
        """Make sure that programs can be run.

        Raises:
            ComponentFailed: they cannot; the message says why and what would help.
        """

    @abstractmethod
    async def stop(self) -> None:
        """End what still runs, and remove its files."""


class Sandbox(Runtime):
    """A runtime for programs that may do harm: each is isolated, with files and limits of its own."""

    python: str  # the interpreter to name in `argv`

    @abstractmethod
    def describe(self) -> str:
        """Return one sentence that says which isolation is active."""

    @property
    def weakness(self) -> str:
        """Which limits are not exact here, and how to get exact ones; empty: all are, or it is not known."""
        return ""

    @abstractmethod
    async def run(self, program: Program, limits: Limits) -> ProgramResult:
        """Run a program to its end. A crash of the program, or a limit that it hits, is a result, not an error.

        Raises:
            ComponentFailed: it did not run.
        """

    @abstractmethod
    async def open(self, program: Program, limits: Limits) -> ProgramSession:
        """Start a program that speaks the protocol of sessions on stdin and stdout.

        Each message is four bytes of length (big-endian), eight bytes of a number, and the text. An answer repeats the
        number.

        Raises:
            ComponentFailed: the program did not start.
        """
