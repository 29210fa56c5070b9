"""Running a program that nobody has read: what goes in, which limits hold, what comes out."""

from __future__ import annotations

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gymq.outcomes import ComponentFailed, InvalidTask

LimitName = Literal["time", "memory", "file", "disk", "output"]

MIB = 1024**2
GIB = 1024**3

# Folders at the root that are there for every program, and what lies in /tmp beside a program's own files.
_OF_THE_SYSTEM = frozenset(
    {"", ".old", "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "usr"}
)
_OF_THE_SANDBOX = frozenset({"", ".shm", "box"})


class SandboxFailed(ComponentFailed):
    """No program ran: the sandbox could not be started, or was lost. Says nothing about the program."""


class SessionEnded(Exception):
    """The program of a session ended; it has to be started anew."""


def clock_s(time_s: float) -> float:
    """Seconds on the clock for a program that may take `time_s` of its own; after them the machine was too busy."""
    return max(60.0, 6 * time_s)


@dataclass(frozen=True)
class Limits:
    """What a program may use. A program that hits a limit is ended, with everything it started."""

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
        """Check what may come from a row.

        Raises:
            InvalidTask: a path or the image is none that a program can be given.
        """
        try:
            for place in self.folders:
                check_folder_path(place)
            for name in self.files:
                check_path(f"/{name}")
        except ValueError as error:
            raise InvalidTask(f"a program's files: {error}") from None
        if "\0" in (self.image or ""):
            raise InvalidTask(f"a program's image: {self.image!r} holds a NUL; name an image")


def check_path(path: str) -> str:
    """Return a path in a sandbox as it is.

    Raises:
        ValueError: it is not absolute, or says where it leads in more than one way.
    """
    if "\0" in path or not path.startswith("/") or posixpath.normpath(path) != path or path.startswith("//"):
        raise ValueError(f"{path!r} is not a plain absolute path; write it without `.`, `..`, NUL and surplus slashes")
    return path


def check_folder_path(path: str) -> str:
    """Return the path of a folder that a program is given as it is.

    Raises:
        ValueError: it is no such path, or belongs to the system or to the sandbox.
    """
    first, _, rest = check_path(path).removeprefix("/").partition("/")
    if first in _OF_THE_SYSTEM or (first == "tmp" and rest.partition("/")[0] in _OF_THE_SANDBOX):
        raise ValueError(f"{path!r} belongs to the system or to the sandbox; name another folder, such as /testbed")
    return path


@dataclass(frozen=True)
class Finished:
    """What became of a program."""

    exit_status: int  # negative: the signal that ended it
    stdout: bytes  # at most `output_bytes`
    stderr: bytes  # at most `output_bytes`
    limit: LimitName | None  # the limit that ended it
    seconds: float


class Session(ABC):
    """A program that stays, and answers one message after another."""

    warns = False  # a program that is out of time, before it is ended

    @abstractmethod
    async def exchange(self, message: bytes, timeout_s: float) -> bytes:
        """Send a message and wait for the answer.

        Args:
            timeout_s: seconds that the answer may take, those of the program's own where the provider can tell them
                apart. A second before the end the program gets SIGALRM, if `warns`.

        Raises:
            TimeoutError: there was none in time. The session is closed.
            SandboxFailed: the machine did not let it run. The session is closed.
            SessionEnded: the program ended, or answered with something that is no answer to this message.
        """

    @abstractmethod
    async def close(self) -> None:
        """End the program and all it started. May be repeated."""


class Sandbox(ABC):
    """A provider of isolation."""

    python: str  # the interpreter to name in `argv`

    @abstractmethod
    async def start(self) -> None:
        """Make sure that programs can be run.

        Raises:
            SandboxFailed: they cannot; the sentence says why and what would help.
        """

    @abstractmethod
    def describe(self) -> str:
        """One sentence: which isolation is active."""

    @abstractmethod
    async def run(self, program: Program, limits: Limits) -> Finished:
        """Run a program to its end. Its own crash or a limit that it hits is a result, no error.

        Raises:
            SandboxFailed: it did not run.
        """

    @abstractmethod
    async def open(self, program: Program, limits: Limits) -> Session:
        """Start a program that speaks the protocol of sessions on stdin and stdout: each message is four bytes of
        length (big-endian), eight bytes of a number, and the text. An answer repeats the number.

        Raises:
            SandboxFailed: it did not start.
        """

    @abstractmethod
    async def stop(self) -> None:
        """End what still runs."""
