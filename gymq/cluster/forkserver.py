"""A process that has imported what workers need and forks one for each message from its parent, `spawner`.

It has no threads, no connections and no secrets. A message has two file descriptors: a socket between the parent and
the worker, and the worker's log. On the socket it reports the worker's process id, and its status when it has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import selectors
import signal
import socket
import sys
import termios
import traceback
from collections.abc import Iterator

from gymq.processes import memory, parent_death

# How the lines begin that report a worker's process id (0: the system has no process to spare) and its status.
PID, ENDED = b"pid ", b"ended "


class ForkServer:
    """Forks workers for the other side of a socket."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._workers: dict[int, socket.socket] = {}
        self._woken, self._wakes = socket.socketpair()

    def serve(self) -> socket.socket | None:
        """Fork workers until the parent closes its socket or none has been needed for a while.

        Returns:
            In each worker its socket to the parent; None in the fork server, at its end.
        """
        for end in (self._woken, self._wakes):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        # Not epoll, which workers would share.
        with contextlib.ExitStack() as in_both, selectors.PollSelector() as selector:
            in_both.callback(self._close)
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while (ready := selector.select(None if self._workers else 60.0)) or self._workers:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
                for pid, status in self._ended():
                    with self._workers.pop(pid) as parent:
                        _report(parent, ENDED, status)
                if any(key.fileobj is self._control for key, _ in ready):
                    message, descriptors, _, _ = socket.recv_fds(self._control, 1, 2)
                    if not message:
                        return None
                    if (to_parent := self._fork(*descriptors)) is not None:
                        return to_parent
        return None

    def _fork(self, to_parent: int, log: int) -> socket.socket | None:
        """Fork a worker; return its socket in the worker, and None here."""
        parent = socket.socket(fileno=to_parent)
        parent.set_inheritable(False)
        with os.fdopen(log, "wb", buffering=0):
            try:
                pid = os.fork()
            except OSError:
                traceback.print_exc()
                with parent:
                    _report(parent, PID, 0)
                return None
            if pid == 0:
                os.dup2(log, 1)  # authors print
                os.dup2(log, 2)
                return parent
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # Ctrl-C in the terminal is for the parent
        self._workers[pid] = parent
        _report(parent, PID, pid)
        return None

    def _ended(self) -> Iterator[tuple[int, int]]:
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            yield pid, os.waitstatus_to_exitcode(status)

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in (self._control, self._woken, self._wakes, *self._workers.values()):
            one.close()


def _report(parent: socket.socket, line: bytes, number: int) -> None:
    with contextlib.suppress(OSError):  # the parent is gone, or no longer interested
        parent.sendall(b"%s%d\n" % (line, number))


def _leave_terminal() -> None:
    """Detach this process and its workers from the terminal: what they start must not prompt there.

    A session of their own would do that too. But then, outside of containers, the kernel would share the cores between
    that session and the parent's, which may train a policy, and not between their processes.
    """
    with contextlib.suppress(OSError), open(os.ctermid(), "rb", buffering=0) as terminal:
        fcntl.ioctl(terminal, termios.TIOCNOTTY)


def main() -> int:
    memory.hide_memory()
    fork_server = os.getpid()
    parent_death.die_with_parent(os.getppid())
    _leave_terminal()
    control = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    # Not at the top: what workers start with `multiprocessing` imports this module again.
    from gymq.cluster import worker_process

    gc.collect()
    gc.freeze()  # what the collector looks at is written to, and no longer shared
    parent = ForkServer(control).serve()
    if parent is None:
        return 0
    parent_death.die_with_parent(fork_server)
    return worker_process.main(parent)


if __name__ == "__main__":
    sys.exit(main())
