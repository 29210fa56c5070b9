"""The part of a file system that a program has taken, where the kernel sets no limit of its own."""

from __future__ import annotations

import errno
import os
import stat
import time

from .spec import Spec


class Disk:
    """The files that the program has written.

    Where it has file systems of its own the kernel knows their numbers, and limits their bytes. Otherwise its folder is
    scanned from time to time.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._roots = ["/tmp", *(path for path in spec.folders if not path.startswith("/tmp/"))]
        self._next = 0.0
        self._given = 0
        self._given = self._files()

    def is_full(self, *, at_the_end: bool = False) -> bool:
        """Return whether there are more files, or more bytes in them, than allowed.

        At the end of a program its folder is scanned in any case: it may have written faster than it was looked at.
        """
        if self._spec.own_view:
            return self._files() - self._given > self._spec.disk_files
        began = time.monotonic()
        if began < self._next and not at_the_end:
            return False
        files, size = _in_folder(self._spec.directory, self._spec.disk_files)
        now = time.monotonic()
        self._next = now + 10 * (now - began)  # at most a tenth of the time is spent on looking
        return files > self._spec.disk_files or size > self._spec.disk_bytes

    def _files(self) -> int:
        if not self._spec.own_view:
            return 0
        return sum(found.f_files - found.f_ffree for found in map(os.statvfs, self._roots))


def _in_folder(folder: str, most: int) -> tuple[int, int]:
    """Count files and bytes below a folder, and stop as soon as there are too many."""
    files = size = 0
    folders, opened = [folder], set()
    while folders and files <= most:
        path = folders.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    files += 1
                    size += found.st_blocks * 512
                    if stat.S_ISDIR(found.st_mode):
                        folders.append(entry.path)
                    if files > most:
                        break
        except PermissionError:  # the program closed it, and its owner may open it
            if path not in opened and _open(path):
                opened.add(path)
                folders.append(path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # what is below cannot be counted
                return most + 1, size
    return files, size


def _open(folder: str) -> bool:
    try:
        os.chmod(folder, 0o700)
    except OSError:
        return False
    return True
