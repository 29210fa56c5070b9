"""The input of the supervisor."""

from __future__ import annotations


class Spec:
    """The fields of `Program` and `Limits`, and how the program is isolated."""

    argv: list[str]
    env: dict[str, str]
    directory: str  # working directory, made here
    files: dict[str, bytes]  # relative to the directory
    folders: dict[str, str]  # to be copied: place in the sandbox -> folder on the machine
    view: list[tuple[str, bool]]  # paths, outer ones first, and whether the program may see what is there

    time_s: float | None  # None: a session, whose owner says how long each step may take
    clock_s: float | None  # after so much on the clock it is the machine that did not let the program run
    memory_bytes: int
    group_bytes: int  # of the control group, if there is one: its files may be in memory, too
    processes: int
    file_bytes: int
    disk_bytes: int
    disk_files: int

    builds_view: bool  # the supervisor has a mount namespace in which it is to build the file system
    own_view: bool  # there are namespaces: of the file system, the network and the rest
    confines_files: bool  # there are none of the file system, but the kernel can hide files all the same
    changes_user: bool  # the supervisor is root, and the program becomes another user

    def __init__(self, values: dict[str, object]) -> None:
        self.__dict__.update(values)
