"""Find, stop, collect and kill the descendants of this process. Linux only; this process is a subreaper."""

from __future__ import annotations

import os
import signal
import time

# What the kernel lets one socket hold by default. Programs cannot ask for more.
_SOCKET_BYTES = 256 * 1024
_MAX_DESCRIPTORS = 256  # of a process
_MOST_PASSES = 1000  # to stop those who start others and each other again
_UNIX_SOCKETS = "/proc/net/unix"
_LOCKS = "/proc/locks"
_LOCK_BYTES = 256  # that the kernel takes for a lock on a part of a file, rounded up
_EPOLL = "anon_inode:[eventpoll]"
_WATCH_BYTES = 320  # that the kernel takes for a descriptor that one of epoll's watches
_MOST_WATCHES = 100_000  # a process has 256 descriptors
_QUEUES = ("/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6")
_DATAGRAM, _MOST_DATAGRAMS = b"0002", 11  # that wait in one socket, each from another one that may be closed by now
_EMPTY_STATES = (b"05", b"06")  # FIN_WAIT2, TIME_WAIT: of a closed connection only the addresses are left


def reap(child: int) -> int | None:
    """Collect all that ended; return the exit status of the program if it did."""
    status = None
    while True:
        try:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            status = os.waitstatus_to_exitcode(wait_status)


def use_too_much_memory(everybody: list[int], limit: int, others: int = 0) -> bool:
    """Return whether anonymous and shared memory plus `others` bytes exceed the limit.

    Adding up counts what is shared for each who has it, so it is only a bound. What is above that is measured.
    """
    return sum(map(_most_memory, everybody)) + others > limit and sum(map(_memory, everybody)) + others > limit


def socket_bytes(everybody: list[int]) -> int:
    """Return the most that the kernel may hold in the sockets of these processes, and in those of their own network.

    A connection that nobody accepted, a datagram of a socket that is closed, and a socket on its way to another process
    belong to no process.
    """
    sockets: set[str] = set()
    hidden = 0
    for pid in everybody:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except PermissionError:  # it has ended, or keeps others from looking: then it has as many as it can
            hidden += _MAX_DESCRIPTORS if _has_memory(pid) else 0
            continue
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if target.startswith("socket:"):
                sockets.add(target)
    unseen = queued = 0
    if (sockets or hidden) and os.getpid() == 1:  # otherwise it is the machine's network, and there are pairs only
        in_network, unseen, queued = _network()
        sockets |= in_network
    return (len(sockets) + hidden + unseen) * _SOCKET_BYTES + queued


def lock_bytes(everybody: list[int]) -> int:
    """Return what the kernel holds for locks of these processes on parts of files, of which it limits no number."""
    owners = {b"%d" % pid for pid in everybody}
    try:
        with open(_LOCKS, "rb") as file:
            return _LOCK_BYTES * sum(line.split()[4] in owners for line in file if b": POSIX " in line)
    except OSError:
        return 0


def watch_bytes(everybody: list[int], limit: int) -> int:
    """Return what the kernel holds for descriptors that these processes watch by epoll.

    It limits their number for a user only, and one file may be watched under many numbers that are closed by now. To
    count takes a microsecond each, so more than a program needs count as more than `limit`.
    """
    watched = 0
    for pid in everybody:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:  # it has ended, or keeps others from looking
            continue
        for name in names:
            try:
                if os.readlink(f"/proc/{pid}/fd/{name}") == _EPOLL:
                    with open(f"/proc/{pid}/fdinfo/{name}", "rb") as file:
                        watched += file.read().count(b"tfd:")
            except OSError:  # it is closed by now
                continue
            if watched > _MOST_WATCHES:
                return limit + 1
    return watched * _WATCH_BYTES


def pids() -> list[int]:
    """Return the children, their children and so on; as process 1 of a namespace all other processes."""
    if os.getpid() == 1:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal() and name != "1"]
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                parents[int(name)] = int(stat(int(name))[1])
            except (OSError, ValueError):
                continue
    found = {os.getpid()}
    grew = True
    while grew:
        new = {pid for pid, parent in parents.items() if parent in found} - found
        found |= new
        grew = bool(new)
    return list(found - {os.getpid()})


def stat(pid: int) -> list[bytes]:
    """Return what `/proc/PID/stat` says after the name: the state first.

    Raises:
        OSError: the process does not exist.
    """
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def stop() -> None:
    """Stop them all, and any that they start meanwhile, so that they use no processor time until `go_on`."""
    if os.getpid() == 1:
        _signal([-1], signal.SIGSTOP)
        return
    for _ in range(_MOST_PASSES):
        running = [pid for pid in pids() if _state(pid) in (b"R", b"S")]
        if not running:
            return
        _signal(running, signal.SIGSTOP)
        time.sleep(0.001)  # for them to notice


def go_on() -> None:
    """Let them run again."""
    _signal([-1] if os.getpid() == 1 else pids(), signal.SIGCONT)


def end() -> None:
    """Kill them all, and any that they start meanwhile, and collect them."""
    while True:
        _signal(pids(), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _signal(receivers: list[int], number: int) -> None:
    for pid in receivers:  # -1: everybody else in the namespace of process 1, in one step
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _state(pid: int) -> bytes | None:
    try:
        return stat(pid)[0]
    except (OSError, IndexError):
        return None


def _most_memory(pid: int) -> int:
    return _sum_of(f"/proc/{pid}/status", (b"RssAnon", b"RssShmem", b"VmSwap", b"VmPTE"))


def _has_memory(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return not file.read().startswith(b"0 ")
    except OSError:
        return False


def _memory(pid: int) -> int:
    """Return the memory of a process with its part of what it shares. Slow: the kernel goes through it page by page."""
    measured = _sum_of(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon", b"Pss_Shmem", b"SwapPss"))
    return measured + _sum_of(f"/proc/{pid}/status", (b"VmPTE",)) if measured else _most_memory(pid)


def _sum_of(path: str, names: tuple[bytes, ...]) -> int:
    total = 0
    try:
        with open(path, "rb") as file:
            for line in file:
                name, _, value = line.partition(b":")
                if name in names:
                    total += int(value.split()[0]) * 1024
    except (OSError, ValueError):
        return total
    return total


def _network() -> tuple[set[str], int, int]:
    """Return the Unix sockets of this network, how many more there may be, and the bytes queued in others."""
    found: set[str] = set()
    unseen = queued = 0
    for row in _rows(_UNIX_SOCKETS, 7):
        if row[4] == _DATAGRAM:
            unseen += _MOST_DATAGRAMS
        if row[6] == b"0":
            unseen += 1
        else:
            found.add(f"socket:[{row[6].decode()}]")
    for table in _QUEUES:
        for row in _rows(table, 10):
            sent, _, received = row[4].partition(b":")
            queued += int(sent, 16) + int(received, 16)
            unseen += row[9] == b"0" and row[3] not in _EMPTY_STATES
    return found, unseen, queued


def _rows(table: str, columns: int) -> list[list[bytes]]:
    """Return the lines of a table of `/proc/net`, in columns, without the heading."""
    try:
        with open(table, "rb") as file:
            rows = [line.split() for line in file.readlines()[1:]]
    except OSError:
        return []
    return [row for row in rows if len(row) >= columns]  # the path of a Unix socket may have line feeds
