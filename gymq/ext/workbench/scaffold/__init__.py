"""The files of a new worker, made from the templates in this folder.

In a template `$name` is the worker's name, `$cls` its class, and `$folder` its folder as it is reached from the folder
where the command was given; in a package `$top` is the folder of `pyproject.toml` and `$dist` the name of the package.
"""

from __future__ import annotations

import keyword
import re
from importlib import resources
from pathlib import Path
from string import Template
from typing import Literal

from gymq.errors import UsageError

# Instances are called after the worker, and their names become parts of subjects.

_WORKER = {
    "worker.py": "{template}/worker.py.txt",
    "config.yaml": "{template}/config.yaml.txt",
    "README.md": "{template}/README.md.txt",
    "data/example.jsonl": "{template}/example.jsonl.txt",
    "tests/test_{name}.py": "{template}/test.py.txt",
}
_PACKAGE = {
    "pyproject.toml": "package/pyproject.toml.txt",
    "README.md": "package/README.md.txt",
    "{name}/__init__.py": "package/init.py.txt",
    **{
        f"{{name}}/{path}": source.format(template="single_turn", name="{name}")
        for path, source in _WORKER.items()
        if path != "README.md"
    },
}

_JUDGE = {**_WORKER, "data/gold.jsonl": "judge/gold.jsonl.txt"}
_PROGRAM = {**_WORKER, "program.py": "program/program.py.txt"}

TemplateName = Literal["single-turn", "multi-turn", "tools", "judge", "sandbox", "agent", "program", "package"]

_TAKEN = frozenset(  # names that the templates import or give
    (
        *("Adder", "AgentHarness", "Any", "BaseHTTPRequestHandler", "FOLDER", "HTTPServer", "Harness"),
        *("JudgedEnvironment", "Limits", "MAX_DIGITS", "MAX_GUESSES", "Model", "OPTIONS", "Path", "ROW", "Rubric"),
        *("SandboxedOptions", "ScriptedModel", "TESTS"),
    )
)


def make_worker(name: str, parent: Path, *, template: TemplateName) -> list[Path]:
    """Write the files of a new worker into `parent / name`.

    Args:
        template: which files.
    """
    _check_name(name)
    top = parent / name
    folder = top / name if template == "package" else top
    words = {
        "name": name,
        "cls": _class_name(name),
        "dist": name.strip("_").replace("_", "-") or "environment",
        "top": _as_folder(top),
        "folder": folder.as_posix(),
    }
    files = {"package": _PACKAGE, "judge": _JUDGE, "program": _PROGRAM}.get(template, _WORKER)
    made = {
        top / path.format(name=name): _filled(source.format(template=template.replace("-", "_")), words)
        for path, source in files.items()
    }
    taken = [str(path) for path in made if path.exists()]
    if taken:
        raise UsageError(f"choose another name, since files are not overwritten: {', '.join(taken)}")
    try:
        for path, text in made.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(f"{error.filename or top} cannot be written: {error.strerror}") from None
    return list(made)


def _check_name(name: str) -> None:
    most = 40
    if not (name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and len(name) <= most):
        similar = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:most]
        example = similar if similar.isidentifier() and not keyword.iskeyword(similar) else "my_env"
        raise UsageError(
            f"{name!r} cannot be the name of a worker: it must be a Python identifier of at most {most} letters, "
            f"digits and underscores, such as {example}"
        )


def _class_name(name: str) -> str:
    words = [word for word in re.split(r"_+", name) if word]
    cls = "".join(word[0].upper() + word[1:] for word in words)
    return cls if cls.isidentifier() and cls not in _TAKEN else f"Worker{cls}"


def _as_folder(folder: Path) -> str:
    """Return the path of a folder in a form that cannot be read as a name."""
    path = folder.as_posix()
    return path if folder.is_absolute() or path.startswith(".") else f"./{path}"


def _filled(template: str, words: dict[str, str]) -> str:
    text = resources.files(__package__).joinpath(template).read_text("utf-8")
    return Template(text).substitute(words)
