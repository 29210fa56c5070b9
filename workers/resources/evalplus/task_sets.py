"""Files of task sets: JSON Lines, possibly compressed, with an object for each task."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TypeVar

import pydantic

from gymq.authoring import first_problem
from gymq.errors import GymqError


class BaseTask(pydantic.BaseModel):
    """A task of any set."""

    task_id: str


class TaskSetError(GymqError, ValueError):
    """A task set that cannot be used; the message says where and why."""


TaskT = TypeVar("TaskT", bound=BaseTask)


def find_file(problems: Path | None, name: str, folder: Path) -> Path:
    """Return the file of a task set.

    Args:
        problems: the file that the options name, relative to the current folder or to the worker's.
        name: of the published file, which is looked for if they name none, also with the ending `.gz`.
        folder: the worker's.

    Raises:
        TaskSetError: there is none.
    """
    if problems is not None:
        candidates = [problems, folder / problems]
        missing = f"the file {problems} does not exist"
    else:
        candidates = [folder / "data" / name, folder / "data" / f"{name}.gz"]
        missing = f"there is no {name} in {folder / 'data'}; download it, or name a file in `problems`"
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        raise TaskSetError(missing)
    return found


def read_tasks(path: Path, kind: type[TaskT]) -> dict[str, TaskT]:
    """Return the tasks of a file by their ids; a name that ends in `.gz` is unpacked.

    Raises:
        TaskSetError: the file cannot be read, or a line is not a task.
    """
    tasks: dict[str, TaskT] = {}
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).split(b"\n")
    except (OSError, EOFError, zlib.error) as error:
        raise TaskSetError(f"{path}: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            task = kind.model_validate_json(line)
        except pydantic.ValidationError as error:
            raise TaskSetError(f"{path}:{number}: {first_problem(error)}") from None
        tasks[task.task_id] = task
    if not tasks:
        raise TaskSetError(f"{path} has no tasks")
    return tasks
