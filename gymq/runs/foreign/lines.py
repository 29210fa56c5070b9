"""Files of rollouts, of gymq and of other programs, as lines of a result file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gymq.data.jsonl import JsonlError, JsonlFile, LineSource
from gymq.runs.foreign.atif import is_atif, read_atif
from gymq.runs.foreign.inspect_log import is_inspect, read_inspect
from gymq.runs.foreign.rollout import ForeignError, ForeignRollout, read_at
from gymq.runs.foreign.verifiers_results import is_verifiers, read_verifiers
from gymq.runs.foreign.verifiers_traces import is_verifiers_episode, read_episode

_SUFFIXES = (".json", ".eval")
MAX_DOCUMENT_BYTES = 2 << 30
__all__ = ["ForeignError", "rollout_lines"]


def rollout_lines(path: Path) -> LineSource:
    """Return the lines of a file of rollouts; the form is recognised by the name and the first line.

    JSON lines: results of gymq and of NeMo Gym as they are, results and traces of verifiers, and trajectories in ATIF.
    A `.json` file: one trajectory in ATIF, or a log of Inspect, as is a `.eval` file.
    """
    if path.suffix in _SUFFIXES:
        return _Documents(path)
    return _Lines(path) if _is_foreign(path) else JsonlFile(path)


def _is_foreign(path: Path) -> bool:
    try:
        first = next((line for line in JsonlFile(path) if not line.isspace()), b"")
        value = msgspec.json.decode(first)
    except (JsonlError, msgspec.DecodeError, RecursionError):
        return False  # reading the lines reports what is wrong with them
    return isinstance(value, dict) and any(is_it(value) for is_it in (is_atif, is_verifiers, is_verifiers_episode))


class _Lines:
    """A file of JSON lines of another program."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)

    def __iter__(self) -> Iterator[bytes]:
        repeats: dict[int, int] = {}
        for number, line in enumerate(JsonlFile(self.path), 1):
            if line.isspace():
                yield b"\n"
            else:
                where = f"{self.name}:{number}"
                with read_at(where):
                    lines = [one.line() for one in _rollouts(line, where, number - 1, repeats)]
                yield from lines


def _rollouts(line: bytes, where: str, index: int, repeats: dict[int, int]) -> Iterator[ForeignRollout]:
    try:
        value: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ForeignError(f"{where}: not JSON: {error}") from None
    if isinstance(value, dict) and is_atif(value):
        yield read_atif(value, where, index)
    elif isinstance(value, dict) and is_verifiers(value):
        yield read_verifiers(value, where, index, repeats)
    elif isinstance(value, dict) and is_verifiers_episode(value):
        yield from read_episode(value, where, index, repeats)
    else:
        text = "neither a trajectory in ATIF nor a result or an episode of verifiers, as the first line is"
        raise ForeignError(f"{where}: {text}")


class _Documents:
    """A file with one document: a trajectory, or a log with many samples."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)

    def __iter__(self) -> Iterator[bytes]:
        try:
            if self.path.suffix == ".eval":
                yield from read_inspect(self.path)
                return
            if self.path.stat().st_size > MAX_DOCUMENT_BYTES:
                raise ForeignError(f"{self.name}: larger than {MAX_DOCUMENT_BYTES} bytes")
            value: Any = json.loads(self.path.read_bytes())  # of Python: Inspect writes NaN, which JSON has not
        except FileNotFoundError:
            raise JsonlError(f"{self.name}: file not found") from None
        except OSError as error:
            raise JsonlError(f"{self.name}: cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            if isinstance(error, ForeignError):
                raise
            raise ForeignError(f"{self.name}: not JSON: {error}") from None
        if isinstance(value, dict) and is_atif(value):
            with read_at(self.name):
                line = read_atif(value, self.name, 0).line()
            yield line
        elif isinstance(value, dict) and is_inspect(value):
            yield from read_inspect(self.path)
        else:
            raise ForeignError(f"{self.name}: neither a trajectory in ATIF nor a log of Inspect")
