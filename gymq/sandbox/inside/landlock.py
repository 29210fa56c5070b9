"""Landlock: a process gives up all files but some, and to signal others. Linux 5.19 or later."""

from __future__ import annotations

import os
import stat
import struct

from . import kernel
from .view import DEVICES

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # numbers of system calls
# From that version on there are rights to truncate files and to control devices; signals, and sockets without a path.
_TRUNCATES, _CONTROLS, _SIGNALS = 3, 5, 6
_READ_FOLDER, _READ, _OF_FILES = 0x8, 0xD, 0xC007  # _READ: also to execute; _OF_FILES: not for folders


def version() -> int:
    """Return the version that the kernel has; 0: none."""
    asks_for_version = 1
    try:
        return kernel.system_call(_CREATE, None, 0, asks_for_version, failure="")
    except OSError:
        return 0


def confine(view: list[tuple[str, bool]], own: str) -> None:
    """Let this process, and all that come from it, use only these files from now on, and signal no others.

    Args:
        view: see `Spec.view`.
        own: the folder in which everything is allowed.
    """
    known = version()
    every = (1 << (14 + (known >= _TRUNCATES) + (known >= _CONTROLS))) - 1
    signals_and_abstract_sockets = 0x3
    attributes = struct.pack("=QQQ", every, 0, signals_and_abstract_sockets)[: 24 if known >= _SIGNALS else 8]
    rules = kernel.system_call(_CREATE, attributes, len(attributes), 0, failure="no rules for files")
    for path, is_shown in view:
        if is_shown:
            _allow_below(rules, path, {hidden for hidden, is_shown in view if not is_shown})
    for path in ("/proc", "/etc"):  # programs take a file of settings that they may not read for an error
        _allow(rules, path, _READ)
    for name in DEVICES:
        _allow(rules, f"/dev/{name}", every)
    _allow(rules, own, every)
    kernel.system_call(_RESTRICT, rules, 0, failure="the rules for files are refused")
    os.close(rules)


def _allow_below(rules: int, path: str, hidden: set[str]) -> None:
    """Allow to read what is at a path. Of a folder that holds something hidden all names can be seen."""
    if path in hidden:
        return
    if not any(other.startswith(f"{path}/") for other in hidden):
        _allow(rules, path, _READ)
        return
    _allow(rules, path, _READ_FOLDER)
    for name in os.listdir(path):
        _allow_below(rules, f"{path}/{name}", hidden)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # it is not there, or this user may not use it anyway
        return
    is_folder = stat.S_ISDIR(os.fstat(fd).st_mode)
    below = 1  # LANDLOCK_RULE_PATH_BENEATH
    rule = struct.pack("=Qi", rights if is_folder else rights & _OF_FILES, fd)
    kernel.system_call(_ADD, rules, below, rule, 0, failure=f"no rule for {path}")
    os.close(fd)
