"""Folders of trusted programs: each has one holder, and a path that follows from its name.

A holder locks its folder (flock), and its programs inherit the lock. So whoever gets the lock knows that all processes
of the holder before are gone; what they left is moved away and removed. A holder that still runs keeps its folder, and
the next one works in another. All folders lie in one that other users can neither enter nor replace.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import secrets
import stat
import tempfile
from dataclasses import dataclass

from gymq.failures import ComponentFailed
from gymq.sandbox.process import remove

log = logging.getLogger("gymq.sandbox")


@dataclass(frozen=True)
class HeldFolder:
    """An empty folder that this process holds."""

    path: str
    lock: int  # a descriptor; the lock lasts until each process that has it is gone, or has closed it

    @classmethod
    async def take(cls, name: str | None, patience_s: float) -> HeldFolder:
        """Take the folder of a name; one with another path while somebody else holds it.

        Args:
            name: any text; no part of it becomes a part of the path. None: a path that no other folder ever has.
            patience_s: seconds to wait for another holder.

        Raises:
            ComponentFailed: there cannot be such a folder here.
        """
        end = asyncio.get_running_loop().time() + patience_s
        try:
            parent = _own_parent()
            path = _new_path(parent) if name is None else os.path.join(parent, _digest(name))
            while (found := _lock(path)) is None and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            if found is None:
                taken, path = path, _new_path(parent)
                log.warning("%s is in use by another process; this attempt works in %s", taken, path)
                found = _lock(path)
        except OSError as error:
            raise ComponentFailed(f"no folder for a program: {error.strerror}: {error.filename}") from None
        if found is None:
            raise ComponentFailed(f"no folder for a program: {path} cannot be entered")
        lock, left = found
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, lock)
            if left is not None:
                await asyncio.to_thread(remove, left)
            undo.pop_all()
        return cls(path, lock)

    async def release(self) -> None:
        """Remove the folder, and give up its name."""
        try:
            await asyncio.shield(asyncio.to_thread(remove, _moved_away(self.path)))
        finally:
            os.close(self.lock)


def _own_parent() -> str:
    """Return the folder that holds those of this user; made if it is not there."""
    user = os.geteuid()
    path = os.path.join(tempfile.gettempdir(), f"gymq-programs-{user}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077:
        raise ComponentFailed(
            f"{path} has to be a folder of user {user} that is closed to others (mode 0700), and is not: remove it, or "
            f"set TMPDIR to a folder of your own"
        )
    return path


def _lock(path: str) -> tuple[int, str | None] | None:
    """Create a folder and lock it.

    Returns:
        The lock, and the new path of what a killed process left there, if it left anything. None while another process
        holds the folder.
    """
    left = None
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:  # its holder has removed it
            continue
        except OSError:  # whatever a program left there
            return None
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            if _is_at(path, lock):
                if not os.listdir(lock):
                    undo.pop_all()
                    return lock, left
                left = _moved_away(path)


def _is_at(path: str, lock: int) -> bool:
    """Return whether it is still this folder that has the path."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.lstat(path), os.fstat(lock))
    return False


def _moved_away(path: str) -> str:
    """Give up the path of a folder at once, however long its removal takes; return where it is now."""
    moved = f"{path}.{secrets.token_hex(4)}"
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, moved)
    return moved


def _new_path(parent: str) -> str:
    return os.path.join(parent, secrets.token_hex(12))


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:24]
