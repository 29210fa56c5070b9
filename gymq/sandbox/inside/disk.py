"""The part of a file system that a program has taken, where the kernel sets no limit of its own."""

from __future__ import annotations

import os
import stat

from .spec import Spec


def taken(spec: Spec) -> tuple[int, int]:
    """Return how many files and folders there are, and the bytes in them if nothing else limits those."""
    if not spec.own_view:
        return _in_folder(spec.directory, spec.disk_files)
    roots = ["/tmp", *(path for path in spec.folders if not path.startswith("/tmp/"))]
    return sum(found.f_files - found.f_ffree for found in map(os.statvfs, roots)), 0


def _in_folder(folder: str, most: int) -> tuple[int, int]:
    """Count files and bytes below a folder, and stop as soon as there are too many, or some that cannot be counted."""
    files = size = 0
    folders = [folder]
    while folders and files <= most:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    files += 1
                    size += found.st_blocks * 512
                    if stat.S_ISDIR(found.st_mode):
                        folders.append(entry.path)
        except FileNotFoundError:  # the program has removed it
            continue
        except OSError:  # it is closed, or too deep
            return most + 1, size
    return files, size
