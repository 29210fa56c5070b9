"""Landlock: a process gives up all files but some, and to signal others. Linux 5.19 or later."""

from __future__ import annotations

import contextlib
import os
import stat
import struct

from . import kernel
from .view import DEVICES

_FIRST_VERSION = 2  # before it, no file could be moved to another folder
# From that version on there are rights to truncate files and to control devices; signals, and sockets without a path.
_TRUNCATES, _CONTROLS, _SIGNALS = 3, 5, 6
_READ_FOLDER, _READ = 0x8, 0xD  # a folder; also files, which may be executed too
_OF_FILES = 0xC007  # execute, write, read, truncate, control: the others are rights on folders
_SIGNAL_AND_ABSTRACT = 0x3
_OPEN = os.O_PATH | os.O_CLOEXEC


def is_here() -> bool:
    """Return whether the kernel can do this."""
    return kernel.landlock_version() >= _FIRST_VERSION


def confine(view: list[tuple[str, bool]], own: str) -> None:
    """Let this process, and all that come from it, use only these files from now on, and signal no others.

    Args:
        view: paths, outer ones first, and whether what is there may be read and executed.
        own: the folder in which everything is allowed.

    Raises:
        OSError: the kernel refused it.
    """
    version = kernel.landlock_version()
    every = (1 << (14 + (version >= _TRUNCATES) + (version >= _CONTROLS))) - 1
    attributes = struct.pack("=QQQ", every, 0, _SIGNAL_AND_ABSTRACT)[: 24 if version >= _SIGNALS else 8]
    with contextlib.closing(kernel.Landlock(attributes)) as rules:
        for path, is_shown in view:
            if is_shown:
                _allow_below(rules, path, {hidden for hidden, is_shown in view if not is_shown})
        for path in ("/proc", "/etc"):  # programs take a file of settings that they may not read for an error
            _allow(rules, path, _READ)
        for name in DEVICES:
            _allow(rules, f"/dev/{name}", every)
        _allow(rules, own, every)
        rules.restrict()


def _allow_below(rules: kernel.Landlock, path: str, hidden: set[str]) -> None:
    """Allow to read what is at a path. Of a folder that holds something hidden all names can be seen."""
    if path in hidden:
        return
    if not any(other.startswith(f"{path}/") for other in hidden):
        _allow(rules, path, _READ)
        return
    _allow(rules, path, _READ_FOLDER)
    for name in os.listdir(path):
        _allow_below(rules, f"{path}/{name}", hidden)


def _allow(rules: kernel.Landlock, path: str, rights: int) -> None:
    try:
        fd = os.open(path, _OPEN)
    except OSError:  # it is not there, or this user may not use it anyway
        return
    is_folder = stat.S_ISDIR(os.fstat(fd).st_mode)
    rules.allow(fd, rights if is_folder else rights & _OF_FILES)
    os.close(fd)
