"""Finding a worker's class: by name, by module or by file."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Literal

from gymq import file_modules
from gymq.agent import Agent
from gymq.authoring import Worker
from gymq.model import Model
from gymq.resources import Resources

Kind = Literal["agents", "models", "resources"]

BASES: dict[Kind, type[Worker]] = {"agents": Agent, "models": Model, "resources": Resources}


class WorkerNotFound(ValueError):
    """No such worker; one sentence naming where was looked."""


def find(kind: Kind, implementation: str) -> type[Worker]:
    """The class that implements a worker.

    Args:
        implementation: a name (`mcqa`: the folder `workers/resources/mcqa`, or an entry point in the group
            `gymq.resources`), a module (`my_package.my_module` or `my_package.my_module:MyClass`), or a file
            (`./my_env.py` or `./my_env.py:MyClass`).

    Modules and folders are also looked for in the current folder, files import what lies beside them.

    Raises:
        WorkerNotFound: there is none, its module cannot be imported, or it holds several.
    """
    file_modules.look_in(Path.cwd())
    place, _, class_name = implementation.partition(":")
    if place.endswith(".py"):
        module = _load_file(Path(place))
    elif not all(part.isidentifier() for part in place.split(".")):
        raise WorkerNotFound(f"{place!r} is no name of a worker: give a name, a module or a file that ends with .py")
    elif "." in place:
        module = _import(place, implementation)
    else:
        module = _by_name(kind, place)
    return _class_in(module, BASES[kind], class_name, implementation)


def _by_name(kind: Kind, name: str) -> ModuleType:
    entered = entered_modules(kind).get(name)
    if entered is not None:
        return _import(entered, name)
    module = f"workers.{kind}.{name}.worker"
    if not _exists(module):
        raise WorkerNotFound(
            f"there is no {kind} worker named {name!r}: no folder workers/{kind}/{name} with worker.py"
        )
    return _import(module, name)


@functools.cache  # it reads a file of every package that is installed
def entered_modules(kind: Kind) -> dict[str, str]:
    """The modules of workers that installed packages name as entry points, by the workers' names."""
    return {entry.name: entry.module for entry in reversed(entry_points(group=f"gymq.{kind}"))}


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _import(module: str, wanted: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise WorkerNotFound(f"cannot import {module} for the worker {wanted!r}: {_said(error)}") from None


def _load_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise WorkerNotFound(f"there is no file {path}")
    try:
        return file_modules.load(path)
    except (Exception, SystemExit) as error:
        raise WorkerNotFound(f"{path} cannot be loaded: {_said(error)}") from None


def _said(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _class_in(module: ModuleType, base: type[Worker], class_name: str, wanted: str) -> type[Worker]:
    if class_name:
        named = getattr(module, class_name, None)
        if not (inspect.isclass(named) and issubclass(named, base)):
            raise WorkerNotFound(f"{wanted}: no class {class_name} derived from gymq.{base.__name__}")
        return named
    found: list[type[Worker]] = [
        value
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, base)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]
    if len(found) != 1:
        names = ", ".join(value.__name__ for value in found) or "none"
        raise WorkerNotFound(
            f"{wanted}: expected one class derived from gymq.{base.__name__}, found {names}; name it as {wanted}:Class"
        )
    return found[0]
