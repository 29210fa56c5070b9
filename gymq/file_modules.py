"""Python files as modules under names that tell where the file is, so that every process can import them.

Pickle names the module of what it writes down, and the processes that verify have loaded no file. With `install` they
find it by that name.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_PREFIX = "gymq_file_"


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_PREFIX):
            return None
        file = Path(bytes.fromhex(fullname.removeprefix(_PREFIX)).decode())
        look_in(file.parent)
        return importlib.util.spec_from_file_location(fullname, file)


def install() -> None:
    """Let such modules be imported in this process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


def load(file: Path) -> ModuleType:
    """The module in a file; loaded once, however often it is asked for. It may import what lies beside it.

    Raises:
        Exception: whatever the file raises.
    """
    install()
    return importlib.import_module(_PREFIX + str(file.resolve()).encode().hex())


def look_in(folder: Path) -> None:
    """Let modules in a folder be imported."""
    # At the end, so that a file there cannot stand for a module of somebody else.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
