"""Python files as modules whose names identify the file, so that every process can import them.

Pickle records the name of an object's module, and the processes that verify have not loaded the file. With `install`
they can import it by that name.
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
    """Let this process import modules by such names."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


def load(file: Path) -> ModuleType:
    """Return the module in a file; it is loaded only once and may import modules from its folder.

    Raises:
        Exception: any exception that the file raises.
    """
    install()
    return importlib.import_module(_PREFIX + str(file.resolve()).encode().hex())


def look_in(folder: Path) -> None:
    """Let this process import the modules of a folder."""
    # At the end, so that a file there cannot shadow an installed module.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
