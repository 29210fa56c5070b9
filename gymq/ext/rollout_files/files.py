"""Files of rollouts as lines of a result file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gymq.data.jsonl import JsonlError, JsonlFile, LineSource
from gymq.ext.rollout_files.rollout import ForeignRollout, read_at
from gymq.extensions import extensions
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import VerifiedRollout


@dataclass(frozen=True, kw_only=True)
class Format:
    """A form in which another program stores rollouts, named by an entry point `gymq.formats`.

    Attributes:
        name: how messages call one of them, such as "a trajectory in ATIF".
        is_it: whether the first line of a file, or its only document, has this form.
        read: the rollouts of one line: the object, its place for messages, its index in the file, and the number of
            rollouts of each task so far, which it counts; None: it is no file of lines.
        is_document: whether a `.json` file may hold one.
        read_file: the lines of a result file that a file comes to; None: a document is read as a line is.
        suffix: names of files that have this form whatever is in them end so.
        write: makes the object for a rollout, for `gymq export`; None: it is only read.
    """

    name: str
    is_it: Callable[[dict[str, Any]], bool]
    read: Callable[[dict[str, Any], str, int, dict[int, int]], Iterable[ForeignRollout]] | None = None
    is_document: bool = False
    read_file: Callable[[Path], Iterator[bytes]] | None = None
    suffix: str | None = None
    write: Callable[[VerifiedRollout], dict[str, Any]] | None = None


@cache
def formats() -> dict[str, Format]:
    """Return the formats of other programs by the names of their entry points."""
    return {found.name: found.load() for found in extensions("formats")}


def rollout_lines(path: Path) -> LineSource:
    """Return the lines of a file of rollouts: results of gymq and of NeMo Gym as they are.

    The form of another program is recognised by the file's name and its first line. A `.json` file is one document.
    """
    if path.suffix == ".json" or any(path.suffix == form.suffix for form in formats().values()):
        return _Documents(path)
    of_lines = [form for form in formats().values() if form.read is not None]
    return _Lines(path, of_lines) if _is_foreign(path, of_lines) else JsonlFile(path)


def _is_foreign(path: Path, of_lines: list[Format]) -> bool:
    try:
        first = next((line for line in JsonlFile(path) if not line.isspace()), b"")
        value = msgspec.json.decode(first)
    except (JsonlError, *UNDECODABLE):
        return False  # reading the lines reports what is wrong with them
    return isinstance(value, dict) and any(form.is_it(value) for form in of_lines)


def _named(forms: Iterable[Format]) -> str:
    return " nor ".join(form.name for form in forms)


class _Lines:
    """A file of JSON lines of another program."""

    def __init__(self, path: Path, of_lines: list[Format]) -> None:
        self.path = path
        self.name = str(path)
        self._forms = of_lines

    def __iter__(self) -> Iterator[bytes]:
        repeats: dict[int, int] = {}
        for number, line in enumerate(JsonlFile(self.path), 1):
            if line.isspace():
                yield b"\n"
            else:
                where = f"{self.name}:{number}"
                with read_at(where):
                    lines = [one.line() for one in self._rollouts(line, where, number - 1, repeats)]
                yield from lines

    def _rollouts(self, line: bytes, where: str, index: int, repeats: dict[int, int]) -> Iterable[ForeignRollout]:
        try:
            value: Any = msgspec.json.decode(line)
        except UNDECODABLE as error:
            raise JsonlError(f"{where}: not JSON: {error}") from None
        form = next((form for form in self._forms if isinstance(value, dict) and form.is_it(value)), None)
        if form is None or form.read is None:
            raise JsonlError(f"{where}: neither {_named(self._forms)}, as the first line is")
        return form.read(value, where, index, repeats)


class _Documents:
    """A file with one document: a trajectory, or a log with many samples."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)

    def __iter__(self) -> Iterator[bytes]:
        known = formats().values()
        try:
            for form in known:
                if form.suffix == self.path.suffix and form.read_file is not None:
                    yield from form.read_file(self.path)
                    return
            most_bytes = 2 << 30
            if self.path.stat().st_size > most_bytes:
                raise JsonlError(f"{self.name}: larger than {most_bytes} bytes")
            value: Any = json.loads(self.path.read_bytes())  # of Python: Inspect writes NaN, which JSON has not
        except FileNotFoundError:
            raise JsonlError(f"{self.name}: file not found") from None
        except OSError as error:
            raise JsonlError(f"{self.name}: cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            if isinstance(error, JsonlError):
                raise
            raise JsonlError(f"{self.name}: not JSON: {error}") from None
        documents = [form for form in known if form.is_document]
        found = next((form for form in documents if isinstance(value, dict) and form.is_it(value)), None)
        if found is None:
            raise JsonlError(f"{self.name}: neither {_named(documents)}")
        if found.read_file is not None:
            yield from found.read_file(self.path)
        elif found.read is not None:
            with read_at(self.name):
                lines = [one.line() for one in found.read(value, self.name, 0, {})]
            yield from lines
