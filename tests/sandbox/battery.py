"""Hostile programs against one isolation: `python -m tests.sandbox.battery ISOLATION [weaker]`, as who starts it.

With `weaker` there is no control group, and programs that only hold memory of the kernel are left out.
It prints, as JSON, what is active, how many attempts there were, and those that succeeded or could not be decided.
"""

from __future__ import annotations

import asyncio
import dataclasses
import glob
import json
import os
import platform
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gymq.failures import ComponentFailed
from gymq.sandbox import MIB, Limits, LocalSandbox, Program, ProgramResult, local
from gymq.sandbox.inside import landlock

from .conftest import alive

AT_ONCE = 8
LIMITS = Limits(
    time_s=30.0,
    memory_bytes=128 * MIB,
    processes=8,
    file_bytes=8 * MIB,
    disk_bytes=32 * MIB,
    disk_files=5_000,
    output_bytes=200_000,
)
SHORT_S = 0.25  # for what never ends

# `attempt` says OPEN if something succeeds that must not.
PRELUDE = """
import array, ctypes, errno, fcntl, mmap, os, resource, signal, socket, struct, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, action):
    try: result = action()
    except Exception: return print('held', name)
    print('held' if result == -1 or result is False else 'OPEN', name, repr(result)[:80])
reader, writer = os.pipe()
os.set_blocking(reader, False)
def filled(mib):
    os.write(writer, bytes(mib))
    time.sleep(99)
def hold_filled(seconds):
    time.sleep(seconds)
    try: hold(len(os.read(reader, 65536)))
    except BlockingIOError: pass
def hold(mib):
    if mib > 160: time.sleep(5)  # a reader finds it
    attempt('hoard', lambda: mib if mib > 160 else -1)
"""

# Calls by number, for x86-64, with arguments that would do something if they were allowed.
CALLS = {
    "ptrace": "101, 16, 1, 0, 0",
    "process_vm_readv": "310, 1, 0, 0, 0, 0, 0",
    "process_vm_writev": "311, 1, 0, 0, 0, 0, 0",
    "chroot": "161, b'/tmp'",
    "pivot_root": "155, b'/tmp', b'/tmp'",
    "mount": "165, b'none', b'/tmp', b'tmpfs', 0, 0",
    "umount": "166, b'/proc', 2",
    "setns": "308, 0, 0",
    "keyctl": "250, 0, -3, 1",
    "add_key": "248, b'user', b'x', b'x', 1, -3",
    "request_key": "249, b'user', b'x', 0, -3",
    "bpf": "321, 0, 0, 0",
    "perf_event_open": "298, 0, 0, -1, -1, 0",
    "userfaultfd": "323, 0",
    "kexec_load": "246, 0, 0, 0, 0",
    "kexec_file_load": "320, 0, 0, 0, 0, 0",
    "init_module": "175, 0, 0, 0",
    "finit_module": "313, 0, 0, 0",
    "delete_module": "176, b'x', 0",
    "open_by_handle_at": "304, -100, 0, 0",
    "swapon": "167, b'/tmp/x', 0",
    "swapoff": "168, b'/tmp/x'",
    "reboot": "169, 0, 0, 0, 0",
    "kcmp": "312, 1, 1, 0, 0, 0",
    "acct": "163, 0",
    "syslog": "103, 10, 0, 0",
    "memfd_create": "319, b'x', 0",
    "memfd_secret": "447, 0",
    "shmget": "29, 0, 4096, 0o1600",
    "msgget": "68, 0, 0o1600",
    "semget": "64, 0, 1, 0o1600",
    "mq_open": "240, b'x', 0o102, 0o600, 0",
    "vmsplice": "278, 1, 0, 0, 0",
    "inotify_init": "253",
    "inotify_init1": "294, 0",
    "fanotify_init": "300, 0x200, 0",
    "io_setup": "206, 1, b'\\0' * 8",
    "landlock_create_ruleset": "444, 0, 0, 1",
    "io_uring_setup": "425, 1, 0",
    "io_uring_enter": "426, 0, 0, 0, 0, 0, 0",
    "open_tree": "428, -100, b'/', 1",
    "move_mount": "429, -100, b'/', -100, b'/tmp', 0",
    "fsopen": "430, b'tmpfs', 0",
    "fsmount": "432, 0, 0, 0",
    "fspick": "433, -100, b'/', 0",
    "pidfd_getfd": "438, 0, 0, 0",
    "mount_setattr": "442, -100, b'/', 0, 0, 0",
    "clone3": "435, 0, 0",
    "clone with a user": "56, 0x10000011, 0, 0, 0, 0",
    "x32": "0x40000000 + 39",
    "sethostname": "170, b'x', 1",
    "settimeofday": "164, b'\\0' * 16, 0",
    "clock_settime": "227, 0, b'\\0' * 16",
    "iopl": "172, 3",
    "ioperm": "173, 0, 1, 1",
    "quotactl": "179, 0, 0, 0, 0",
    "vhangup": "153",
    "mknod": "133, b'/tmp/box/d', 0o60600, 0x101",
    **{f"unshare {flag:#x}": f"272, {flag:#x}" for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000,
                                                             0x20000000, 0x40000000)},
}  # fmt: skip

# By kind and name. Behind its name each stands as it is run.
PROGRAMS = dict(
    part.split("\n", 1) for part in Path(__file__).with_name("hostile_programs.txt").read_text().split("## ")[1:]
)

PATHS = ("/etc/x", "/usr/x", "/bin/x", "/lib/x", "/x", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger",
         "/proc/self/oom_score_adj_", "/sys/x", "/dev/null_", "/etc/passwd", f"{sys.prefix}/x", f"{sys.base_prefix}/x",
         str(Path(__file__)), str(Path(__file__).parent / "x"), sys.executable)  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """A program, and what has to become of it."""

    name: str
    code: str
    limits: Limits = LIMITS
    must_reach: str | None = None  # this limit


def trials(isolation: str, is_weaker: bool, is_confined: bool, secret: Path, port: int, unix: str) -> list[Trial]:
    short = dataclasses.replace(LIMITS, time_s=SHORT_S)
    found = [
        Trial(name, code, short, "time") if name.startswith("for ever") else Trial(name, code)
        for name, code in PROGRAMS.items()
        if not (isolation == "process" and "(view)" in name) and not (is_weaker and "(group)" in name)
    ]
    calls = "".join(f"attempt({name!r}, lambda: libc.syscall({call}))\n" for name, call in CALLS.items())
    if platform.machine() == "x86_64":
        found.append(Trial("calls", calls))
    sockets = (
        "for family in sorted(set(range(1, 50)) - {1, 2, 10}):\n    for make in (socket.socket, socket.socketpair):\n"
        "        for kind in (1, 2, 3, 5): attempt(f'{make.__name__} {family} {kind}', lambda: make(family, kind))\n"
        "for family in (2, 10): attempt(f'raw {family}', lambda: socket.socket(family, 3, 1))\n"
        "for protocol in (33, 132, 136, 262): attempt(f'protocol {protocol}', lambda: socket.socket(2, 1, protocol))\n"
    )
    reached = (
        f"attempt('tcp', lambda: socket.create_connection(('127.0.0.1', {port}), 5))\n"
        f"attempt('udp', lambda: socket.socket(2, 2).sendto(b'x', ('192.0.2.1', 53)))\n"
        f"attempt('unix', lambda: socket.socket(1).connect({unix!r}) or 1)\n"
        f"attempt('abstract', lambda: socket.socket(1).connect({chr(0) + unix!r}) or 1)\n"
        "attempt('name', lambda: socket.getaddrinfo('example.org', 80))\n"
    )
    # A program has a /tmp of its own: what it writes there, also on the way to a checkout in /tmp, gets nowhere else.
    outside = [path for path in PATHS if not path.startswith("/tmp/")]
    written = f"for path in {outside!r}: attempt(path, lambda: open(path, 'ab').write(b'') or 1)\n"
    found += [Trial("sockets", sockets), Trial("reached", reached), Trial("written", written)]
    if isolation != "process":
        hidden = [str(secret), str(Path(__file__)), "/etc/shadow", "/etc/hostname", "/root/.bashrc", "/proc/kcore",
                  "/proc/1/root/etc/shadow", f"/proc/{os.getpid()}/environ", f"/proc/{os.getpid()}/mem"]  # fmt: skip
        found.append(Trial("read", f"for path in {hidden!r}: attempt(path, lambda: open(path, 'rb').read(1) or -1)\n"))
        found.append(Trial("others", f"for n in (0, 9, 19): attempt('kill', lambda: os.kill({os.getpid()}, n) or 1)\n"))
    elif is_confined:
        hidden = [str(secret), f"/proc/{os.getpid()}/environ", f"/proc/{os.getpid()}/mem", "/etc/shadow"]
        found.append(Trial("read", f"for path in {hidden!r}: attempt(path, lambda: open(path, 'rb').read(1) or -1)\n"))
        found.append(Trial("others", f"for n in (0, 9, 19): attempt('kill', lambda: os.kill({os.getpid()}, n) or 1)\n"))
    return found


def faults(trial: Trial, finished: ProgramResult) -> list[str]:
    """What a program achieved that it should not have."""
    lines = finished.stdout.decode(errors="replace").splitlines()
    found = [f"{trial.name}: {line}" for line in lines if line.startswith("OPEN")]
    if trial.must_reach is not None and finished.limit != trial.must_reach:
        said = finished.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        found.append(f"{trial.name}: limit {finished.limit}, status {finished.exit_status} ({said})")
    return found


async def main(isolation: str, *how: str) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        if how:
            local._control_groups = lambda: how[0]  # type: ignore[assignment]
        tempfile.tempdir = (
            folder  # so that what a sandbox leaves there can be distinguished from what others have there
        )
        return await tried(isolation, folder)


async def tried(isolation: str, own_folder: str) -> dict[str, object]:
    # Where nothing separates them, processes count for the user, so that programs at a time take each other's.
    sandbox = LocalSandbox(1 if isolation == "process" and os.geteuid() else AT_ONCE, isolation)
    try:
        await sandbox.start()
    except ComponentFailed as error:
        return {"not_here": error.message}
    marker = f"battery-{os.getpid()}"
    os.environ["SECRET"] = "hunter2"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.create_server(("127.0.0.1", 0)) as tcp:
        secret, unix = Path(folder) / "secret", f"{folder}/s"
        secret.write_text("hunter2")
        with socket.socket(socket.AF_UNIX) as by_path, socket.socket(socket.AF_UNIX) as abstract:
            for listening, name in ((by_path, unix), (abstract, f"\0{unix}")):
                listening.bind(name)
                listening.listen()
            assert sandbox._isolation is not None
            is_confined = sandbox._isolation.user != "same" or landlock.version() >= 6  # with signals
            is_weaker = "(weaker)" in sandbox.describe()
            every = trials(isolation, is_weaker, is_confined, secret, tcp.getsockname()[1], unix)

            async def run(trial: Trial) -> tuple[int, list[str]]:
                argv = (sandbox.python, "-I", "-c", f"{PRELUDE}\n{trial.code}", marker)
                try:
                    finished = await sandbox.run(Program(argv, stdin=b"x"), trial.limits)
                except ComponentFailed as error:
                    return 1, [f"{trial.name}: {error.message}"]
                attempts = sum(line.startswith((b"held", b"OPEN")) for line in finished.stdout.splitlines())
                return max(1, attempts), faults(trial, finished)

            outcomes = await asyncio.gather(*map(run, every))
    for _ in range(400):  # the kernel may take a moment to end them
        left = alive(marker)
        if not left:
            break
        await asyncio.sleep(0.05)
    left_folders = glob.glob(f"{own_folder}/gymq-*/*")
    return {
        "active": sandbox.describe(),
        "programs": len(every),
        "attempts": sum(number for number, _ in outcomes),
        "faults": [fault for _, several in outcomes for fault in several],
        "processes": left,
        "folders": left_folders,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
