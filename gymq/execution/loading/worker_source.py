"""Location of a worker's files, found by name, by folder or by file as on the command line."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from gymq.authoring import Worker
from gymq.errors import did_you_mean
from gymq.execution.loading import registry
from gymq.execution.loading.registry import BASES, InvalidWorker, WorkerNotFound, worker_names
from gymq.processes import file_modules
from gymq.protocol.instances import Instance, Kind
from gymq.workers import SHIPPED

WORKER_FILE = "worker.py"


@dataclass(frozen=True)
class WorkerSource:
    """A worker's class and the files beside it.

    Attributes:
        implementation: its name in a configuration.
        folder: folder with its tests, its example rows and its config.yaml; None for a single file.
        rows: example rows that are somewhere else.
    """

    kind: Kind
    name: str
    implementation: str
    cls: type[Worker]
    file: Path
    folder: Path | None
    rows: Path | None = None

    @property
    def tests(self) -> Path | None:
        found = None if self.folder is None else self.folder / "tests"
        return found if found is not None and any(found.glob("test_*.py")) else None

    @property
    def examples(self) -> Path | None:
        return self.rows or self._beside("data/example.jsonl")

    @property
    def gold(self) -> Path | None:
        return self._beside("data/gold.jsonl")

    @property
    def mocks(self) -> Path | None:
        return self._beside("tests/mocks.py")

    @property
    def config(self) -> Path | None:
        return self._beside("config.yaml")

    def _beside(self, name: str) -> Path | None:
        found = None if self.folder is None else self.folder / name
        return found if found is not None and found.is_file() else None

    def is_run_by(self, instance: Instance) -> bool:
        """Return whether an instance of a configuration runs this worker."""
        if instance.kind != self.kind:
            return False
        place = instance.implementation.partition(":")[0]
        if not place.endswith(".py"):
            return instance.implementation == self.implementation
        path = Path(place)
        # Its configuration may name it from the folder it was made in.
        return path.resolve() == self.file or (not path.is_file() and path.parts[-2:] == self.file.parts[-2:])


def find_worker(named: str, kinds: Collection[Kind] = tuple(BASES)) -> WorkerSource:
    """Return the worker that the user means.

    Args:
        named: a name (`mcqa`), a folder with worker.py, shipped ones too, a Python file, also as `file.py:Class`,
            or a module, also as `package.module:Class`.
        kinds: the kinds of worker that are accepted.

    Raises:
        WorkerNotFound: there is no such worker, it cannot be loaded, or workers of two kinds have this name.
    """
    file_modules.look_in(Path.cwd())
    place, _, class_name = named.partition(":")
    path = Path(place)
    if path.parts[:1] == ("workers",) and not path.exists() and (SHIPPED / path).exists():
        path = SHIPPED / path
    if path.is_dir():
        package = path / path.resolve().name  # the folder of a package for pip has it one level below
        path = (package if not (path / WORKER_FILE).is_file() and package.is_dir() else path) / WORKER_FILE
        if not path.is_file():
            raise WorkerNotFound(f"the folder {named} has no {WORKER_FILE}")
    if path.is_file():
        return _in_file(path.resolve(), class_name, kinds)
    if "." in place and "/" not in place and not place.endswith(".py"):
        return _of_some_kind(named, kinds)
    if "/" in place or place.endswith(".py"):
        raise WorkerNotFound(f"file or folder {place} not found")
    matching = [kind for kind in kinds if place.isidentifier() and _exists(kind, place)]
    if not matching:
        folders = ", ".join(f"workers/{kind}" for kind in kinds)
        hint = did_you_mean(place, [name for kind in kinds for name in worker_names(kind)])
        raise WorkerNotFound(f"no worker named {place!r} in the current folder or in {folders}{hint}")
    if len(matching) > 1:
        folders = " or ".join(f"workers/{kind}/{place}" for kind in matching)
        raise WorkerNotFound(f"there are several workers named {place!r}: give the folder {folders}")
    return _by_name(matching[0], named)


def _in_file(file: Path, class_name: str, kinds: Collection[Kind]) -> WorkerSource:
    name = file.parent.name if file.name == WORKER_FILE else file.stem
    for kind in kinds:
        # Under its name its module is the same one that the rest of its package imports.
        spec = registry.spec_of(kind, name)
        if spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file:
            return _by_name(kind, f"{name}:{class_name}" if class_name else name)
    return _of_some_kind(f"{file}:{class_name}" if class_name else str(file), kinds)


def _of_some_kind(implementation: str, kinds: Collection[Kind]) -> WorkerSource:
    """Return the worker in a file or module; its class determines its kind."""
    problems: list[WorkerNotFound] = []
    for kind in kinds:
        try:
            cls = registry.find_class(kind, implementation)
        except InvalidWorker:
            raise
        except WorkerNotFound as error:
            problems.append(error)
            continue
        file = Path(inspect.getfile(cls)).resolve()
        is_folder = file.name == WORKER_FILE
        name = file.parent.name if is_folder else file.stem
        return WorkerSource(kind, name, implementation, cls, file, file.parent if is_folder else None)
    if len({str(problem) for problem in problems}) == 1:
        raise problems[0]
    bases = ", ".join(f"gymq.{BASES[kind].__name__}" for kind in kinds)
    place = implementation.partition(":")[0]
    raise WorkerNotFound(
        f"{place} holds no class, or more than one, derived from one of {bases}; name one as {place}:Class"
    )


def _by_name(kind: Kind, implementation: str) -> WorkerSource:
    cls = registry.find_class(kind, implementation)
    file = Path(inspect.getfile(cls)).resolve()
    return WorkerSource(kind, implementation.partition(":")[0], implementation, cls, file, file.parent)


def _exists(kind: Kind, name: str) -> bool:
    return name in registry.entered_modules(kind) or registry.spec_of(kind, name) is not None


def instance_name(file: Path) -> str:
    """Return the name of the instance that a file with a verifier becomes; worker.py has that of its folder.

    Args:
        file: also as `file.py:Class`.
    """
    file = Path(str(file).partition(":")[0])
    name = file.resolve().parent.name if file.name == WORKER_FILE else file.stem
    return "".join(letter if letter.isalnum() else "_" for letter in name)
