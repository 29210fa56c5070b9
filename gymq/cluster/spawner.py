"""Starts worker processes by forking one that has imported what they need; its own side is `forkserver`.

To import gymq takes half a second of CPU; to fork takes milliseconds, and the memory is shared until it is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import threading
import weakref

import msgspec

from gymq.bus.rpc.quarantine import SuspectCall
from gymq.cluster.forkserver import ENDED, PID
from gymq.cluster.loop_watch import SIGNAL, TickReader
from gymq.cluster.process_spec import ANSWER, SUSPECTS, ProcessSpec, StartContext
from gymq.failures import Place
from gymq.processes.passed_environment import passed


class Spawned:
    """A worker process; what `asyncio.subprocess.Process` has, as far as it is needed."""

    def __init__(
        self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fork_server: _ForkServer
    ) -> None:
        self.pid = pid
        self._fork_server = fork_server  # which ends its workers when it ends
        self.returncode: int | None = None
        self.suspects: list[SuspectCall] = []  # at work
        self.blocked_at: Place | None = None  # where it was killed because its event loop was blocked
        self._writer = writer
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> int:
        status = -signal.SIGKILL  # where the fork server was killed, and this process with it
        ticks = TickReader(tick=lambda: self.send_signal(SIGNAL), end=self._end_blocked)
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                if line.startswith(ANSWER) and not self._answer.done():
                    self._answer.set_result(line.removeprefix(ANSWER).decode().strip())
                elif ENDED in line:  # at the end of what the process wrote when it ended
                    status = int(line.rpartition(ENDED)[2])
                elif line.startswith(SUSPECTS):
                    self.suspects = msgspec.json.decode(line.removeprefix(SUSPECTS), type=list[SuspectCall])
                else:
                    ticks.read(line)
        self.returncode = status
        if not self._answer.done():
            self._answer.set_result("")
        self._writer.close()
        return status

    def _end_blocked(self, place: Place) -> None:
        self.blocked_at = place
        self.kill()

    async def ask(self, context: StartContext, spec: ProcessSpec) -> None:
        """Send what the process waits for: through a socket, so that secrets are neither in arguments nor in /proc."""
        for message in (context, spec):
            self._writer.write(msgspec.json.encode(message) + b"\n")
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def answer(self) -> str:
        """Return the line that the process answers with; empty if it ends without one."""
        return await asyncio.shield(self._answer)

    async def wait(self) -> int:
        """Wait until it ends; return its status, which is negative for a signal."""
        return await asyncio.shield(self._reading)

    def terminate(self) -> None:
        """Ask it to drain and end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class _ForkServer:
    """A fork server, seen from its parent."""

    def __init__(self, python: str, environment: dict[str, str], log_to: int) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                # -P: a file in the current folder must not stand for a module of the library
                [python, "-P", "-m", "gymq.cluster.forkserver"],
                stdin=theirs.fileno(),
                stdout=log_to,
                stderr=log_to,
                process_group=0,
                env=environment,
            )
        # Closing the socket stops the server. Nothing else is done: this may run in a process that is forked here.
        weakref.finalize(self, self._control.close)
        threading.Thread(target=self._process.wait, daemon=True).start()  # it may end when idle: it shall be no zombie

    def is_running(self) -> bool:
        return self._process.poll() is None

    async def fork(self, log_to: int) -> Spawned | None:
        """Fork a process; None if the fork server ends before it does, or hangs and is killed.

        Raises:
            ChildProcessError: the system has no process to spare.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"."], [theirs.fileno(), log_to])
            except OSError:
                ours.close()
                return None
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        line, pid = b"", 0
        try:
            async with asyncio.timeout(300.0):  # It imports gymq first, perhaps from a slow disk.
                line = await reader.readline()
            if line.startswith(PID) and not (pid := int(line.removeprefix(PID))):
                raise ChildProcessError("the system has no process to spare")
        except ConnectionError:
            pass
        except TimeoutError:
            self._process.kill()
        finally:
            if not pid:
                writer.close()  # the process ends, if there is one
        return Spawned(pid, reader, writer, self) if pid else None


# The kernel ends a fork server with the thread that started it, so each thread has its own: one for each interpreter
# and environment.
_of_this_thread = threading.local()


def load_again() -> None:
    """Have further worker processes forked by servers that load gymq as it is installed now."""
    _of_this_thread.__dict__.clear()


async def spawn(python: str, log_to: int) -> Spawned:
    """Start a worker process, which waits for its context and its spec.

    Args:
        python: interpreter that can import gymq.
        log_to: descriptor of the file for what the process writes to stdout and stderr.

    Raises:
        ChildProcessError: none can be started; the reason is in the log.
    """
    environment = passed("services", os.environ)
    key = (os.getpid(), python, *sorted(environment.items()))
    servers: dict[tuple[object, ...], _ForkServer] = _of_this_thread.__dict__.setdefault("servers", {})
    for _ in range(2):  # one without workers may end at this moment
        for ended in [key for key, server in servers.items() if not server.is_running()]:
            del servers[ended]
        if (server := servers.get(key)) is None:
            server = servers[key] = _ForkServer(python, environment, log_to)
        if (spawned := await server.fork(log_to)) is not None:
            return spawned
        if servers.get(key) is server:
            del servers[key]
    raise ChildProcessError("no worker process can be started")
