"""Finding a worker's class: by name, by module or by file."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, overload

from gymq.agent import Agent
from gymq.authoring import Worker
from gymq.errors import did_you_mean
from gymq.execution.loading.contract import InvalidWorker as InvalidWorker
from gymq.execution.loading.contract import WorkerNotFound as WorkerNotFound
from gymq.execution.loading.contract import check_contract
from gymq.extensions import extensions
from gymq.failures import say_author_error
from gymq.model import Model
from gymq.processes import file_modules
from gymq.protocol.instances import Instance, Kind
from gymq.resources import Resources
from gymq.workers import SHIPPED

BASES: dict[Kind, type[Worker]] = {"agents": Agent, "models": Model, "resources": Resources}


@overload
def find_class(kind: Literal["resources"], implementation: str) -> type[Resources[Any]]: ...


@overload
def find_class(kind: Kind, implementation: str) -> type[Worker]: ...


def find_class(kind: Kind, implementation: str) -> type[Worker]:
    """Return the class that implements a worker.

    Modules and folders are also looked for in the current folder; files can import modules beside them.

    Args:
        implementation: a name (`mcqa`: the folder `workers/resources/mcqa`, shipped or in the current folder, or an
            entry point in the group `gymq.resources`), a module (`my_package.my_module` or
            `my_package.my_module:MyClass`), or a file (`./my_env.py` or `./my_env.py:MyClass`).

    Raises:
        WorkerNotFound: there is no such worker, its module cannot be imported, or it holds several.
        InvalidWorker: its class does not fulfil the contract of its kind.
    """
    file_modules.look_in(Path.cwd())
    place, _, class_name = implementation.partition(":")
    if place.endswith(".py"):
        module = _load_file(Path(place))
    elif not all(part.isidentifier() for part in place.split(".")):
        raise WorkerNotFound(f"invalid worker name {place!r}: give a name, a module or a file that ends with .py")
    elif "." in place:
        module = _import(place, implementation)
    else:
        module = _by_name(kind, place)
    worker = _class_in(module, BASES[kind], class_name, implementation)
    check_contract(worker)
    return worker


def class_of(instance: Instance) -> type[Worker] | None:
    """Return the class of an instance; None if it is not found, which is reported where workers are checked."""
    try:
        return find_class(instance.kind, instance.implementation)
    except WorkerNotFound:
        return None


def _by_name(kind: Kind, name: str) -> ModuleType:
    spec = spec_of(kind, name)
    if spec is not None and spec.name.startswith("gymq."):  # no package replaces ours
        return _import(spec.name, name)
    if (entered := entered_modules(kind).get(name)) is not None:
        return _import(entered, name)
    if spec is None:
        raise WorkerNotFound(
            f"there is no {kind} worker named {name!r}: no folder workers/{kind}/{name} with worker.py"
            f"{did_you_mean(name, worker_names(kind))}"
        )
    return _import(spec.name, name)


def spec_of(kind: Kind, name: str) -> ModuleSpec | None:
    """Return where the module of a worker with a folder is, without importing it: of a shipped one, else of one here.

    A folder `workers/resources/NAME` in the current folder is the module `workers.resources.NAME`.
    """
    for package in ("gymq.workers", "workers"):
        try:
            spec = importlib.util.find_spec(f"{package}.{kind}.{name}.worker")
        except ModuleNotFoundError:
            continue
        if spec is not None:
            return spec
    return None


def entered_modules(kind: Kind) -> dict[str, str]:
    """Return the modules of workers that installed packages declare as entry points, by worker name."""
    return {entry.name: entry.module for entry in reversed(extensions(kind))}


def worker_names(kind: Kind) -> list[str]:
    """Return the workers that can be found by name: folders of `workers/`, shipped and local, and entry points."""
    file_modules.look_in(Path.cwd())
    names = set(entered_modules(kind))
    for folder in (SHIPPED, Path.cwd()):
        names |= {path.parent.name for path in folder.glob(f"workers/{kind}/*/worker.py")}
    return sorted(names)


def _import(module: str, wanted: str) -> ModuleType:
    shipped = f"; gymq's own workers are in gymq.{module}" if module.startswith("workers.") else ""
    cannot = f"cannot import {module} for the worker {wanted!r}"
    return _loaded(lambda: importlib.import_module(module), cannot, shipped)


def _load_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise WorkerNotFound(f"file {path} not found")
    return _loaded(lambda: file_modules.load(path), f"{path} cannot be loaded")


def _loaded(load: Callable[[], ModuleType], cannot: str, hint: str = "") -> ModuleType:
    try:
        return load()
    except (Exception, SystemExit) as error:  # any error of an author's code
        raise WorkerNotFound(f"{cannot}: {say_author_error(error)}{hint}") from None


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
    if not found:
        raise WorkerNotFound(f"{wanted} defines no class derived from gymq.{base.__name__}")
    if len(found) > 1:
        names = ", ".join(value.__name__ for value in found)
        raise WorkerNotFound(
            f"{wanted}: expected one class derived from gymq.{base.__name__}, found {names}; name it as {wanted}:Class"
        )
    return found[0]
