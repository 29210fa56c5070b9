"""Keeps a program that is trusted: nothing is hidden from it or refused to it, but nothing of it outlives it.

`LINE_FD MEMORY_BYTES SCRIPT`; the exit status, or the signal, is the program's. The line is one end of a pair of
sockets. The owner writes on it when the program has to end, and it closes when the owner dies. The keeper writes on it
if memory ended the program.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys

from . import descendants, kernel

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import would take longer than the rest
    from typing import NoReturn


def main() -> NoReturn:
    line, memory_bytes = map(int, sys.argv[2:4])
    os.set_inheritable(line, False)
    _watch_over_me()
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # with a handler it writes on `wake`
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    child = os.fork()
    if child == 0:
        _become(sys.argv[4])
    for fd in (0, 1, 2):  # so that the reader of the program's output sees its end
        os.close(fd)
    status, memory = None, False
    looked = select.poll()  # which takes descriptors of any number
    looked.register(line, select.POLLIN)
    looked.register(woken, select.POLLIN)
    while status is None:
        ready = [fd for fd, _ in looked.poll(250 if memory_bytes else None)]  # in milliseconds
        if woken in ready:
            os.read(woken, 4096)
        status = descendants.reap(child)
        if memory_bytes:
            memory = descendants.use_too_much_memory(descendants.pids(), memory_bytes)
        if line in ready or memory:
            break
    descendants.end()
    if memory and status is None:
        os.write(line, b"memory")
    _exit_like(-signal.SIGKILL if status is None else status)


def _watch_over_me() -> None:
    """Continue as a child, a subreaper, of a process that ends with it and in its way, and is a subreaper too.

    Either may be killed, by the program or by an owner that kills its children first: the other one then ends the rest.
    """
    kernel.become_subreaper()
    keeper = os.fork()
    if keeper == 0:
        kernel.become_subreaper()
        return
    for fd in (0, 1, 2):
        os.close(fd)
    status = None
    while status is None:
        pid, wait_status = os.waitpid(-1, 0)
        if pid == keeper:
            status = os.waitstatus_to_exitcode(wait_status)
    descendants.end()
    _exit_like(status)


def _become(script: str) -> NoReturn:
    os.setsid()
    signal.set_wakeup_fd(-1)
    # Python ignores the last two, and programs inherit.
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execv("/bin/sh", ["/bin/sh", "-c", script])


def _exit_like(status: int) -> NoReturn:
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if status != -signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
