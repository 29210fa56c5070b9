"""Finding a worker's class: by name, by module or by file."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Literal

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

    Raises:
        WorkerNotFound: there is none, its module cannot be imported, or it holds several.
    """
    place, _, class_name = implementation.partition(":")
    if place.endswith(".py"):
        module = _load_file(Path(place))
    elif "." in place:
        module = _import(place, implementation)
    else:
        module = _by_name(kind, place)
    return _class_in(module, BASES[kind], class_name, implementation)


def _by_name(kind: Kind, name: str) -> ModuleType:
    if not name.isidentifier():
        raise WorkerNotFound(f"{name!r} is no name of a worker")
    for entry in entry_points(group=f"gymq.{kind}"):
        if entry.name == name:
            return _import(entry.module, name)
    module = f"workers.{kind}.{name}.worker"
    if importlib.util.find_spec("workers") is None or not _exists(module):
        raise WorkerNotFound(
            f"there is no {kind} worker named {name!r}: no folder workers/{kind}/{name} with worker.py"
        )
    return _import(module, name)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _import(module: str, wanted: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise WorkerNotFound(f"cannot import {module} for the worker {wanted!r}: {error}") from None


def _load_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise WorkerNotFound(f"there is no file {path}")
    name = f"gymq_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Registered under its name so that its classes can be pickled into the processes that verify.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise WorkerNotFound(f"{path} cannot be loaded: {type(error).__name__}: {error}") from None
    return module


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
