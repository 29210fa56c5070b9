"""The few requests to the kernel for which Python has no function. Linux, x86-64 and arm64."""

from __future__ import annotations

import _socket
import ctypes
import errno
import fcntl
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import would take longer than the rest
    from collections.abc import Sequence

MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_RDONLY = 0x2, 0x4, 0x20, 0x1
MS_BIND, MS_REC = 0x1000, 0x4000

_MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 24, 22, 38
_PR_SET_CHILD_SUBREAPER = 36
_SECCOMP_MODE_FILTER = 2
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
_LAST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)

# Numbers of system calls: <asm/unistd_64.h>, <asm-generic/unistd.h>. From 424 on they are the same everywhere.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*
_NUMBERS = {
    "x86_64": {
        "clone": 56,
        "fcntl": 72,
        "ioctl": 16,
        "socket": 41,
        "socketpair": 53,
        "setsockopt": 54,
        "pivot_root": 155,
    },
    "aarch64": {
        "clone": 220,
        "fcntl": 25,
        "ioctl": 29,
        "socket": 198,
        "socketpair": 199,
        "setsockopt": 208,
        "pivot_root": 41,
    },
}
_CLONE3, _CLOSE_RANGE = 435, 436
# By which one process stops, ends or hampers another one, which is named by the first argument: kill, tkill, tgkill,
# rt_sigqueueinfo, rt_tgsigqueueinfo, prlimit64, setpgid, sched_setscheduler, sched_setparam, sched_setaffinity,
# sched_setattr; pidfd_open.
_AIMED = {
    "x86_64": "62 200 234 129 297 302 109 144 142 203 314",
    "aarch64": "129 130 131 138 240 261 154 119 118 122 274",
}
_PIDFD_SEND_SIGNAL, _PIDFD_OPEN = 424, 434
_PRIORITY = {"x86_64": (141, 251), "aarch64": (140, 30)}  # setpriority, ioprio_set
# What no program under test needs, and what reaches into other processes or into rarely used parts of the kernel:
# ptrace, process_vm_readv/writev, unshare, setns, mount, umount2, pivot_root, chroot, keyctl, add_key, request_key,
# bpf, perf_event_open, userfaultfd, kexec_load, kexec_file_load, init_module, finit_module, delete_module,
# open_by_handle_at, swapon, swapoff, reboot, kcmp, acct, syslog.
# What holds memory that no process maps, which could not be counted: memfd_create, shmget, msgget, semget, mq_open,
# vmsplice; inotify_init, inotify_init1, fanotify_init, whose events wait for a reader.
# What the whole machine has a limited number of: io_setup.
_REFUSED = {
    "x86_64": "101 310 311 272 308 165 166 155 161 250 248 249 321 298 323 246 320 175 313 176 304 167 168 169 312"
    " 163 103 319 29 68 64 240 278 253 294 300 206",
    "aarch64": "117 270 271 97 268 40 39 41 51 219 217 218 280 241 282 104 294 105 273 106 265 224 225 142 272 89 116"
    " 279 194 186 190 180 75 26 262 0",
}
# io_uring_*, open_tree to fspick, pidfd_getfd, mount_setattr, landlock_create_ruleset (rules are such memory too),
# memfd_secret
_REFUSED_EVERYWHERE = [425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442, 444, 447]
# sendfile, splice, tee: a socket or pipe holds the whole page of a byte that is moved into it, also when its file is
# gone, and the kernel counts the byte. With this error programs read and write instead.
_UNSUPPORTED = {"x86_64": "40 275 276", "aarch64": "71 76 77"}
_MOUNT_SETATTR = 442
_CLOSE_RANGE_UNSHARE = 2
_CLONE_FILES, _CLONE_THREAD, _CLONE_NEWUSER = 0x400, 0x10000, 0x10000000
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_PROTOCOLS = (0, 6, 17)  # the usual one, TCP, UDP
_SOL_SOCKET = 1
_BUFFER_OPTIONS = (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF, SO_SNDBUFFORCE, SO_RCVBUFFORCE
# F_OFD_SETLK, F_OFD_SETLKW: locks of an open file, for which no process is named. F_SETLEASE, F_NOTIFY: a process
# that opens a file of the same user waits for the holder of a lease. F_SETOWN, F_SETSIG, F_SETOWN_EX: any signal to any
# process.
_FILE_CONTROLS = (37, 38, 1024, 1026, 8, 10, 15)
_OWNER_CONTROLS = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
_EVERYBODY = 0xFFFFFFFF  # kill(-1, ...)
_X32_BIT = 0x40000000


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    def encoded(text: str | None) -> bytes | None:
        return None if text is None else os.fsencode(text)

    if _libc.mount(encoded(source), encoded(target), encoded(kind), ctypes.c_ulong(flags), encoded(options)) != 0:
        _fail(f"cannot mount {target}")


def make_read_only(target: str) -> None:
    """Make a mount and all below it read-only, without devices and set-user-id programs."""
    attributes = struct.pack("=QQQQ", MS_RDONLY | MS_NOSUID | MS_NODEV, 0, 0, 0)  # MOUNT_ATTR_* have the same values
    path = os.fsencode(target)
    if _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE, attributes, len(attributes)) != 0:
        _fail(f"cannot make {target} read-only")


def pivot_root(new_root: str, put_old: str) -> None:
    if _libc.syscall(_NUMBERS[os.uname().machine]["pivot_root"], os.fsencode(new_root), os.fsencode(put_old)) != 0:
        _fail("cannot change the root directory")


def detach(target: str) -> None:
    if _libc.umount2(os.fsencode(target), _MNT_DETACH) != 0:
        _fail(f"cannot unmount {target}")


def raise_loopback() -> None:
    """Switch on the loopback interface of a new network namespace."""
    request = struct.pack("16sH22x", b"lo", _IFF_UP)
    loopback = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)  # `socket` takes long to import
    fcntl.ioctl(loopback, _SIOCSIFFLAGS, request)
    loopback.close()


def set_undumpable() -> None:
    """Keep other processes of the same user from looking into this one."""
    _prctl(_PR_SET_DUMPABLE, 0)


def become_subreaper() -> None:
    """Make orphaned descendants children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def drop_bounding_set() -> None:
    """Prevent any gain of capabilities by executing a file. The process needs CAP_SETPCAP, or no capabilities."""
    for capability in range(_LAST_CAPABILITY + 1):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            if ctypes.get_errno() in (errno.EINVAL, errno.EPERM):
                break  # the kernel knows no more of them, or an ordinary user asks
            _fail("cannot drop capabilities")


def drop_privileges() -> None:
    """Drop all capabilities, and prevent any gain of them by executing a file."""
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    if _libc.capset(header, bytes(24)) != 0:
        _fail("cannot drop capabilities")
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def refuse_system_calls(network: bool, guarded: tuple[int, ...] = ()) -> None:
    """Install a filter for this process and all that come from it; a refused call fails with EPERM.

    Args:
        network: there is a network namespace, so that sockets of the internet's families reach nothing. Without one
            there are no sockets but pairs.
        guarded: processes of the same user that must not be signalled or hampered.

    Raises:
        OSError: the kernel or the machine has no such filter.
    """
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOTSUP, f"no system call filter for {machine}")
    program = b"".join(_filter(machine, network, guarded))
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(code))  # struct sock_fprog
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header)


# A program of struct sock_filter: classic BPF over struct seccomp_data. Jumps count the instructions that are skipped.
_LOAD, _AND, _EQUAL, _AT_LEAST, _BITS, _GIVE = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, (16, 24, 32)  # offsets; of arguments the lower half
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_REFUSE, _MISSING, _INVALID = (0x00050000 | number for number in (errno.EPERM, errno.ENOSYS, errno.EINVAL))


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _filter(machine: str, network: bool, guarded: tuple[int, ...]) -> list[bytes]:
    numbers = _NUMBERS[machine]
    families = [_AF_UNIX, _AF_INET, _AF_INET6] if network else []
    lines = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, _ARCHITECTURES[machine], 1),
        _instruction(_GIVE, _KILL),
        _instruction(_LOAD, _NUMBER),
        _instruction(_AT_LEAST, _X32_BIT, 0, 1),
        _instruction(_GIVE, _REFUSE),
        # Its flags are in memory, where a filter cannot look; libraries fall back to clone.
        _instruction(_EQUAL, _CLONE3, 0, 1),
        _instruction(_GIVE, _MISSING),
    ]
    for number in [*map(int, _REFUSED[machine].split()), *_REFUSED_EVERYWHERE]:
        lines += _if_called(number, [_instruction(_GIVE, _REFUSE)])
    for number in map(int, _UNSUPPORTED[machine].split()):
        lines += _if_called(number, [_instruction(_GIVE, _INVALID)])
    lines += _if_called(numbers["socket"], [*_unless(0, families), *_unless(2, _PROTOCOLS)])
    lines += _if_called(numbers["socketpair"], _unless(0, [_AF_UNIX]))
    lines += _if_called(numbers["setsockopt"], _if(1, [_SOL_SOCKET], _if(2, _BUFFER_OPTIONS)))
    lines += _if_called(numbers["fcntl"], _if(1, _FILE_CONTROLS))
    lines += _if_called(numbers["ioctl"], _if(1, _OWNER_CONTROLS))
    # A thread with descriptors of its own could hide them.
    unsharing = [_instruction(_LOAD, _ARGUMENTS[2]), _instruction(_BITS, _CLOSE_RANGE_UNSHARE, 0, 1)]
    lines += _if_called(_CLOSE_RANGE, [*unsharing, _instruction(_GIVE, _REFUSE)])
    own_descriptors = [
        _instruction(_LOAD, _ARGUMENTS[0]),
        _instruction(_BITS, _CLONE_NEWUSER, 0, 1),
        _instruction(_GIVE, _REFUSE),
        _instruction(_AND, _CLONE_THREAD | _CLONE_FILES),
        _instruction(_EQUAL, _CLONE_THREAD, 0, 1),
        _instruction(_GIVE, _REFUSE),
    ]
    lines += _if_called(numbers["clone"], own_descriptors)
    if guarded:
        lines += _if_called(_PIDFD_SEND_SIGNAL, [_instruction(_GIVE, _REFUSE)])
        for number in [*map(int, _AIMED[machine].split()), _PIDFD_OPEN]:
            lines += _if_called(number, _if(0, [*guarded, _EVERYBODY]))
        for number in _PRIORITY[machine]:  # of the caller only, whose number is 0
            lines += _if_called(number, _unless(1, [0]))
    return [*lines, _instruction(_GIVE, _ALLOW)]


def _if_called(number: int, lines: list[bytes]) -> list[bytes]:
    """Return instructions for one system call; after them it is allowed."""
    body = [*lines, _instruction(_GIVE, _ALLOW)]
    return [_instruction(_EQUAL, number, 0, len(body)), *body]


def _if(argument: int, values: Sequence[int], then: list[bytes] | None = None) -> list[bytes]:
    """Refuse, or do something else, if the argument is one of the values."""
    body = then or [_instruction(_GIVE, _REFUSE)]
    tests = [_instruction(_EQUAL, value, len(values) - 1 - at, 0) for at, value in enumerate(values[:-1])]
    last = _instruction(_EQUAL, values[-1], 0, len(body))
    return [_instruction(_LOAD, _ARGUMENTS[argument]), *tests, last, *body]


def _unless(argument: int, values: Sequence[int]) -> list[bytes]:
    """Refuse if the argument is none of the values."""
    tests = [_instruction(_EQUAL, value, len(values) - at) for at, value in enumerate(values)]
    return [_instruction(_LOAD, _ARGUMENTS[argument]), *tests, _instruction(_GIVE, _REFUSE)]


def _prctl(option: int, value: int, pointer: bytes | int = 0) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), pointer, 0, 0) != 0:
        _fail(f"prctl {option} failed")


def _fail(what: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, f"{what}: {os.strerror(number)}")
