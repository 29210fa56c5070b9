"""Temporary folders that each have one holder, and are removed when their holder is gone.

A holder locks its folder (flock), and programs that inherit the lock hold it too. Whoever takes a folder removes those
whose lock is free: all processes that had it are gone. All folders lie in one that other users cannot write in.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class HeldFolder:
    """A folder that this process holds."""

    path: str
    lock: int  # a descriptor; the lock lasts until each process that has it is gone, or has closed it

    @classmethod
    def take(cls, name: str | None = None) -> HeldFolder:
        """Take an empty folder.

        Args:
            name: any text, from which its path follows, but of which no part becomes a part of the path. None: a path
                that no other folder ever has.

        Raises:
            FileExistsError: somebody else holds the folder of that name.
            OSError: there cannot be such a folder here.
        """
        parent = _own_parent()
        path = os.path.join(parent, _new_name() if name is None else _digest(name))
        alone = os.open(parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(alone, fcntl.LOCK_EX)  # until it is closed, no other process takes a folder
            left = list(_moved_away(parent))
            if left:
                threading.Thread(target=_remove_left, args=(left,)).start()
            os.mkdir(path, 0o700)
            lock = lock_folder(path)
        finally:
            os.close(alone)
        assert lock is not None
        return cls(path, lock)

    def release(self) -> None:
        """Remove the folder."""
        remove(self.path)
        os.close(self.lock)


def lock_folder(path: str | os.PathLike[str]) -> int | None:
    """Return a descriptor that locks a folder; None: there is none that this process could lock now."""
    with contextlib.suppress(OSError):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return lock
    return None


def remove(folder: str) -> None:
    """Remove a folder with all that is in it, as far as this user may.

    However deep folders are nested, and although they may be closed to their owner.
    """
    for command in ("rm -rf", "chmod -R u+rwx", "rm -rf"):
        if os.path.lexists(folder):
            subprocess.run([*command.split(), "--", folder], stderr=subprocess.DEVNULL, check=False)


def _own_parent() -> str:
    """Return the folder that holds those of this user; made if it is not there.

    Raises:
        OSError: it cannot be made, or another user may write in it.
    """
    user = os.geteuid()
    path = os.path.join(tempfile.gettempdir(), f"gymq-{user}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o711)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o022:
        raise PermissionError(
            f"{path} has to be a folder of user {user} in which no other user may write (mode 0711), and is not: "
            f"remove it, or set TMPDIR to a folder of your own"
        )
    return path


def _moved_away(parent: str) -> Iterator[tuple[str, int]]:
    """Give up the paths of folders without a holder; return where they are now, and their locks."""
    for name in os.listdir(parent):
        path, moved = os.path.join(parent, name), os.path.join(parent, _new_name())
        if (lock := lock_folder(path)) is not None:
            os.rename(path, moved)
            yield moved, lock


def _remove_left(folders: list[tuple[str, int]]) -> None:
    for path, lock in folders:
        HeldFolder(path, lock).release()


def _new_name() -> str:
    return secrets.token_hex(8)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:24]
