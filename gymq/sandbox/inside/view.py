"""The file system as a sandboxed program sees it: the system's programs and libraries, read-only, and /tmp."""

from __future__ import annotations

import os

from . import kernel
from .spec import Spec

_OLD = "/.old"
SHARED_MEMORY = "/tmp/.shm"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
DEVICES = ("null", "zero", "full", "random", "urandom")
LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/shm": SHARED_MEMORY,
}


def build(spec: Spec, uid: int) -> None:
    """Replace the root directory of this process, which has a mount namespace of its own.

    Args:
        uid: the user as which the program will run, as it sees itself.
    """
    kernel.mount("sandbox", "/tmp", "tmpfs", kernel.MS_NOSUID, "mode=755,size=1m")
    os.mkdir("/tmp/.old")
    os.chdir("/tmp")
    kernel.pivot_root(".", ".old")
    os.chdir("/")
    for name in ("/tmp", "/dev", "/proc", "/etc"):
        os.mkdir(name)
    size = spec.disk_bytes
    options = f"mode=755,size={size},nr_inodes={spec.disk_files}"
    kernel.mount("sandbox", "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    for path, is_shown in spec.view:
        (_show if is_shown else _cover)(path)
    for path, is_shown in spec.view:
        if not is_shown and os.path.isdir(path):
            kernel.make_read_only(path)
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV)
    _make_devices()
    _write("/etc/passwd", f"sandbox:x:{uid}:{uid}::/tmp/box:/bin/sh\n")
    _write("/etc/group", f"sandbox:x:{uid}:\n")
    _write("/etc/hosts", "127.0.0.1 localhost\n")
    sources = {inside: os.open(_OLD + outside, _FOLDER) for inside, outside in spec.folders.items()}
    kernel.raise_loopback()
    kernel.detach(_OLD)
    os.rmdir(_OLD)
    for inside, source in sources.items():  # only now: no path leads to a folder of the machine any more
        os.makedirs(inside, exist_ok=True)
        if not inside.startswith("/tmp/"):
            kernel.mount("sandbox", inside, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"mode=755,size={size}")
        _copy(f"/proc/self/fd/{source}", inside)
        os.close(source)
    kernel.mount("", "/", "", kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID)


def fill(spec: Spec, uid: int | None) -> None:
    """Write the program's files into its working directory, and give it to the program's user."""
    box = spec.directory
    os.makedirs(box, exist_ok=True)
    for name, content in spec.files.items():
        path = os.path.join(box, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
    if not spec.builds_view:
        for inside, outside in spec.folders.items():
            _copy(outside, inside)
    if uid is None:
        return
    roots = [box, *spec.folders]
    if spec.builds_view:  # then /tmp is the program's
        os.chown("/tmp", uid, uid)
        roots.append(SHARED_MEMORY)
    for root in roots:
        for folder, _, files in os.walk(root):
            for path in (folder, *(os.path.join(folder, file) for file in files)):
                os.chown(path, uid, uid, follow_symlinks=False)


def _show(path: str) -> None:
    """Make something of the machine visible under its own name, read-only."""
    source = _OLD + path
    if os.path.lexists(path) or not os.path.lexists(source):
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), path)
        return
    if os.path.isdir(source):
        os.mkdir(path)
    else:
        _write(path, "")
    kernel.mount(source, path, "", kernel.MS_BIND | kernel.MS_REC)
    kernel.make_read_only(path)


def _cover(path: str) -> None:
    """Put something empty in the place of a folder or file that is visible. What is inside may be shown again."""
    if os.path.isdir(path):
        kernel.mount("sandbox", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=1m")
    elif os.path.lexists(path):
        kernel.mount(f"{_OLD}/dev/null", path, "", kernel.MS_BIND)


def _make_devices() -> None:
    for name in DEVICES:
        _write(f"/dev/{name}", "")
        kernel.mount(f"{_OLD}/dev/{name}", f"/dev/{name}", "", kernel.MS_BIND)
    for link, target in LINKS.items():
        os.symlink(target, link)
    os.mkdir(SHARED_MEMORY, 0o700)


def _copy(source: str, target: str) -> None:
    import shutil  # slow to import, and few programs are given folders

    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
