"""The few requests to the kernel for which Python has no function. Linux, x86-64 and arm64."""

from __future__ import annotations

import _socket
import ctypes
import fcntl
import os
import struct

MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_RDONLY = 0x2, 0x4, 0x20, 0x1
MS_BIND, MS_REC = 0x1000, 0x4000

_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}  # the numbers of newer system calls are the same on all machines
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 4, 22, 36, 38

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    names = map(os.fsencode, (source, target, kind))
    _check(_libc.mount(*names, ctypes.c_ulong(flags), os.fsencode(options)), f"cannot mount {target}")


def make_read_only(target: str) -> None:
    """Make a mount and all below it read-only, without devices and set-user-id programs."""
    attributes = struct.pack("=QQQQ", MS_RDONLY | MS_NOSUID | MS_NODEV, 0, 0, 0)  # MOUNT_ATTR_* have the same values
    mount_setattr = 442
    arguments = (_AT_FDCWD, os.fsencode(target), _AT_RECURSIVE, attributes, len(attributes))
    system_call(mount_setattr, *arguments, failure=f"cannot make {target} read-only")


def pivot_root(new_root: str, put_old: str) -> None:
    number = _PIVOT_ROOT[os.uname().machine]
    system_call(number, os.fsencode(new_root), os.fsencode(put_old), failure="cannot change the root directory")


def detach(target: str) -> None:
    detached = 2  # MNT_DETACH
    _check(_libc.umount2(os.fsencode(target), detached), f"cannot unmount {target}")


def raise_loopback() -> None:
    """Switch on the loopback interface of a new network namespace."""
    set_flags, up = 0x8914, 0x1  # SIOCSIFFLAGS, IFF_UP
    loopback = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)  # `socket` takes long to import
    fcntl.ioctl(loopback, set_flags, struct.pack("16sH22x", b"lo", up))
    loopback.close()


def set_undumpable() -> None:
    """Keep other processes of the same user from looking into this one."""
    _prctl(_PR_SET_DUMPABLE, 0)


def become_subreaper() -> None:
    """Make orphaned descendants children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def drop_privileges() -> None:
    """Drop all capabilities, and prevent any gain of them by executing a file."""
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    _check(_libc.capset(header, bytes(24)), "cannot drop capabilities")
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def filter_system_calls(program: bytes) -> None:
    """Let instructions of the packet filter decide on the system calls of this process and of all that come from it."""
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(code))  # struct sock_fprog
    mode_filter = 2
    _prctl(_PR_SET_SECCOMP, mode_filter, header)


def system_call(number: int, *arguments: bytes | int | None, failure: str) -> int:
    return _check(_libc.syscall(number, *arguments), failure)


def _prctl(option: int, value: int, pointer: bytes | int = 0) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), pointer, 0, 0), f"prctl {option} failed")


def _check(result: int, failure: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{failure}: {os.strerror(number)}")
    return result
