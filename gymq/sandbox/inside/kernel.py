"""The few requests to the kernel for which Python has no function. Linux, x86-64 and arm64."""

from __future__ import annotations

import _socket
import ctypes
import errno
import fcntl
import os
import struct

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

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_RULE_PATH, _LANDLOCK_VERSION = 1, 1


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
    if _libc.syscall(_PIVOT_ROOT[os.uname().machine], os.fsencode(new_root), os.fsencode(put_old)) != 0:
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


def filter_system_calls(program: bytes) -> None:
    """Let a filter decide on the system calls of this process and of all that come from it.

    Args:
        program: instructions of the kernel's packet filter.

    Raises:
        OSError: the kernel has no such filters.
    """
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(code))  # struct sock_fprog
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header)


class Landlock:
    """Rules for files, of which a process with `no_new_privs` allows itself no others from then on.

    Args:
        attributes: struct landlock_ruleset_attr.
    """

    def __init__(self, attributes: bytes) -> None:
        self._fd = _call(_LANDLOCK_CREATE, attributes, len(attributes), 0)

    def allow(self, fd: int, rights: int) -> None:
        """Allow rights on an open file, or on a folder and all below it."""
        _call(_LANDLOCK_ADD, self._fd, _LANDLOCK_RULE_PATH, struct.pack("=Qi", rights, fd), 0)

    def restrict(self) -> None:
        """Begin to refuse everything else."""
        _call(_LANDLOCK_RESTRICT, self._fd, 0)

    def close(self) -> None:
        os.close(self._fd)


def landlock_version() -> int:
    """Return the version of Landlock that the kernel has; 0: none."""
    version: int = _libc.syscall(_LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION)
    return max(0, version)


def _call(number: int, *arguments: bytes | int) -> int:
    found: int = _libc.syscall(number, *arguments)
    if found < 0:
        _fail(f"system call {number} failed")
    return found


def _prctl(option: int, value: int, pointer: bytes | int = 0) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), pointer, 0, 0) != 0:
        _fail(f"prctl {option} failed")


def _fail(what: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, f"{what}: {os.strerror(number)}")
