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

# Numbers of system calls: <asm/unistd_64.h>, <asm-generic/unistd.h>. From 424 on they are the same everywhere.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*
_NUMBERS = {
    "x86_64": {"clone": 56, "clone3": 435, "socket": 41, "pivot_root": 155},
    "aarch64": {"clone": 220, "clone3": 435, "socket": 198, "pivot_root": 41},
}
# What no program under test needs, and what reaches into other processes or into rarely used parts of the kernel:
# ptrace, process_vm_readv/writev, unshare, setns, mount, umount2, pivot_root, chroot, keyctl, add_key, request_key,
# bpf, perf_event_open, userfaultfd, kexec_load, kexec_file_load, init_module, finit_module, delete_module,
# open_by_handle_at, swapon, swapoff, reboot, kcmp, acct, syslog.
_REFUSED = {
    "x86_64": "101 310 311 272 308 165 166 155 161 250 248 249 321 298 323 246 320 175 313 176 304 167 168 169 312"
    " 163 103",
    "aarch64": "117 270 271 97 268 40 39 41 51 219 217 218 280 241 282 104 294 105 273 106 265 224 225 142 272 89 116",
}
# io_uring_*, open_tree to fspick, pidfd_getfd, mount_setattr
_REFUSED_EVERYWHERE = [425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442]
_MOUNT_SETATTR = 442
_CLONE_NEWUSER = 0x10000000
_X32_BIT = 0x40000000


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    def encoded(text: str | None) -> bytes | None:
        return None if text is None else os.fsencode(text)

    if _libc.mount(encoded(source), encoded(target), encoded(kind), ctypes.c_ulong(flags), encoded(options)) != 0:
        _fail(f"cannot mount {target}")


def make_read_only(target: str) -> None:
    """A mount and all below it, without devices and set-user-id programs."""
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
    """No process of the same user may look into this one."""
    _prctl(_PR_SET_DUMPABLE, 0)


def become_subreaper() -> None:
    """Orphaned descendants become children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def drop_bounding_set() -> None:
    """No capability can be had by executing something. For this the process needs CAP_SETPCAP, or to have none."""
    for capability in range(_LAST_CAPABILITY + 1):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            if ctypes.get_errno() in (errno.EINVAL, errno.EPERM):
                break  # the kernel knows no more of them, or an ordinary user asks
            _fail("cannot drop capabilities")


def drop_privileges() -> None:
    """No capabilities now, and none to be had by executing something."""
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    if _libc.capset(header, bytes(24)) != 0:
        _fail("cannot drop capabilities")
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def refuse_system_calls(sockets: bool) -> None:
    """Install a filter for this process and all that come from it; what it refuses fails with EPERM.

    Args:
        sockets: refuse them too, for where there is no network namespace.

    Raises:
        OSError: the kernel or the machine has no such filter.
    """
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOTSUP, f"no system call filter for {machine}")
    numbers = _NUMBERS[machine]
    refused = [*map(int, _REFUSED[machine].split()), *_REFUSED_EVERYWHERE]
    if sockets:
        refused.append(numbers["socket"])
    program = _filter(_ARCHITECTURES[machine], refused, numbers["clone"], numbers["clone3"])
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(code))  # struct sock_fprog
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header)


def _filter(architecture: int, refused: list[int], clone: int, clone3: int) -> bytes:
    """A program of struct sock_filter: classic BPF over struct seccomp_data."""

    def instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("=HBBI", code, if_true, if_false, value)

    load, equal, at_least, bits, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, kill = 0x7FFF0000, 0x80000000
    refuse, missing = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
    lines = [
        instruction(load, 4),  # architecture
        instruction(equal, architecture, 1),
        instruction(give, kill),
        instruction(load, 0),  # number
        instruction(at_least, _X32_BIT, 0, 1),
        instruction(give, refuse),
        # Its flags are in memory, where a filter cannot look; libraries fall back to clone.
        instruction(equal, clone3, 0, 1),
        instruction(give, missing),
    ]
    for number in refused:
        lines += [instruction(equal, number, 0, 1), instruction(give, refuse)]
    lines += [
        instruction(equal, clone, 0, 3),
        instruction(load, 16),  # first argument: flags
        instruction(bits, _CLONE_NEWUSER, 0, 1),
        instruction(give, refuse),
        instruction(give, allow),
    ]
    return b"".join(lines)


def _prctl(option: int, value: int, pointer: bytes | int = 0) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), pointer, 0, 0) != 0:
        _fail(f"prctl {option} failed")


def _fail(what: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, f"{what}: {os.strerror(number)}")
