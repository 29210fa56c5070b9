"""What the supervisor is told."""

from __future__ import annotations


class Spec:
    """Members are those of `Program` and `Limits`, and how the program is isolated."""

    argv: list[str]
    env: dict[str, str]
    directory: str  # working directory, made here
    files: dict[str, bytes]  # relative to the directory
    folders: dict[str, str]  # to be copied: place in the sandbox -> folder on the machine
    view: list[tuple[str, bool]]  # paths, outer ones first, and whether the program may see what is there

    wall_s: float | None
    cpu_s: float | None
    memory_bytes: int
    processes: int
    file_bytes: int
    disk_bytes: int

    builds_view: bool  # the supervisor has a mount namespace in which it is to build the file system
    own_network: bool  # there is a network namespace; otherwise sockets are refused
    changes_user: bool  # the supervisor is root, and the program becomes another user

    def __init__(self, members: dict[str, object]) -> None:
        self.__dict__.update(members)
