"""The files of a new worker, made from the templates in this folder.

In a template `$name` is the worker's name, `$cls` its class, `$folder` its folder and `$file` its worker.py, both as
they are reached from the folder where the command was given.
"""

from __future__ import annotations

import keyword
import re
from importlib import resources
from pathlib import Path
from string import Template

# Instances are called after the worker, and their names become parts of subjects.
MAX_NAME = 40

_FILES = {
    "worker.py": "worker.py.txt",
    "config.yaml": "config.yaml.txt",
    "README.md": "README.md.txt",
    "data/example.jsonl": "example.jsonl.txt",
    "tests/test_{name}.py": "test.py.txt",
}


class ScaffoldError(Exception):
    """Files that cannot be made; one sentence."""


def make_worker(name: str, parent: Path, *, kind: str) -> list[Path]:
    """Write the files of a new worker into `parent / name`.

    Args:
        kind: the folder of templates: environment or agent.

    Raises:
        ScaffoldError: the name cannot be used, or a file is there already; then nothing is written.
    """
    _check_name(name)
    folder = parent / name
    words = {"name": name, "cls": _class_name(name), "folder": folder.as_posix(), "file": _as_implementation(folder)}
    made = {folder / path.format(name=name): _filled(f"{kind}/{template}", words) for path, template in _FILES.items()}
    taken = [str(path) for path in made if path.exists()]
    if taken:
        raise ScaffoldError(f"nothing is overwritten, and there is already {', '.join(taken)}: choose another name")
    try:
        for path, text in made.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ScaffoldError(f"{error.filename or folder} cannot be written: {error.strerror}") from None
    return list(made)


def _check_name(name: str) -> None:
    if not (name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and len(name) <= MAX_NAME):
        raise ScaffoldError(
            f"{name!r} cannot be the name of a worker: it must be a Python identifier of at most {MAX_NAME} letters, "
            "digits and underscores, such as my_env"
        )


def _class_name(name: str) -> str:
    words = [word for word in re.split(r"_+", name) if word]
    cls = "".join(word[0].upper() + word[1:] for word in words)
    return cls if cls.isidentifier() else f"Worker{cls}"


def _as_implementation(folder: Path) -> str:
    """The worker's file as a configuration names it."""
    path = (folder / "worker.py").as_posix()
    return path if folder.is_absolute() or path.startswith(".") else f"./{path}"


def _filled(template: str, words: dict[str, str]) -> str:
    text = resources.files(__package__).joinpath(template).read_text("utf-8")
    return Template(text).substitute(words)
