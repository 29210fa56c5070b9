"""Paths in a configuration file are relative to that file, else to the current folder."""

import os
from pathlib import Path
from typing import Any

from gymq.protocol.instances import KIND_OF

_PATH_OPTIONS = frozenset({"prepare_script", "prompt_config"})
_LIST_OPTION = "files"  # files and folders, one after the other
_SUFFIX = "_fpath"
_REMOTE_OPTION = "artifact_fpath"  # in a repository of data sets, not on this machine


def resolve_relative_paths(tree: dict[Any, Any], folder: Path) -> dict[str, str]:
    """Rewrite, in place, relative paths in a file's content that exist in the folder of the file.

    They are the files of workers and the options `*_fpath`, `prepare_script`, `prompt_config` and, a list, `files`.

    The new paths are valid from the current folder, where workers are started, and relative if they are below it.
    A path that names the same file from there, or does not exist in that folder, stays unchanged.

    Args:
        tree: the content of a configuration file, unresolved.
        folder: folder of the file.

    Returns:
        The original spelling of each implementation that was renamed.
    """
    written: dict[str, str] = {}
    for block in tree.values():
        for kind in KIND_OF if isinstance(block, dict) else ():
            implementations = block.get(kind)
            if not isinstance(implementations, dict):
                continue
            renamed = {_worker(name, folder): options for name, options in implementations.items()}
            written.update(zip(map(str, renamed), map(str, implementations), strict=False))
            _rewrite_options(renamed, folder)
            block[kind] = renamed
    return {new: old for new, old in written.items() if new != old}


def _worker(name: Any, folder: Path) -> Any:
    file, colon, class_name = str(name).partition(":")
    return f"{_from_current_folder(file, folder)}{colon}{class_name}" if file.endswith(".py") else name


def _rewrite_options(value: Any, folder: Path) -> None:
    for item in value if isinstance(value, list) else ():
        _rewrite_options(item, folder)
    for name, item in value.items() if isinstance(value, dict) else ():
        is_path = name in _PATH_OPTIONS or (str(name).endswith(_SUFFIX) and name != _REMOTE_OPTION)
        if is_path and isinstance(item, str):
            value[name] = _from_current_folder(item, folder)
        elif name == _LIST_OPTION and isinstance(item, list):
            value[name] = [_from_current_folder(one, folder) if isinstance(one, str) else one for one in item]
        else:
            _rewrite_options(item, folder)


def _from_current_folder(text: str, folder: Path) -> str:
    """Return a path relative to the current folder."""
    path = Path(text)
    target = folder / path
    try:
        if not text or path.is_absolute() or not target.exists() or (path.exists() and path.samefile(target)):
            return text
    except (OSError, ValueError):  # a name that no file can have
        return text
    here = Path.cwd()
    found = Path(os.path.normpath(target.absolute()))
    return str(found.relative_to(here) if found.is_relative_to(here) else found)
