"""Removing a folder that a hostile program has filled."""

from __future__ import annotations

import contextlib
import os


def remove(folder: str) -> None:
    """Remove a folder with all that is in it, as far as this user may.

    However deep it is nested, no path gets longer: folders move up before they are emptied. Those that are closed to
    their owner are opened.
    """
    number = 0
    pending = [folder]
    while pending:
        current = pending.pop()
        inner = []
        with contextlib.suppress(OSError):
            os.chmod(current, 0o700)
            with os.scandir(current) as entries:
                inner = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for path, is_folder in inner:
            with contextlib.suppress(OSError):
                if not is_folder:
                    os.unlink(path)
                    continue
                os.chmod(path, 0o700)  # to move a folder is to write in it
                number += 1
                moved = f"{folder}.{number}"
                os.rename(path, moved)
                pending.append(moved)
        with contextlib.suppress(OSError):
            os.rmdir(current)
