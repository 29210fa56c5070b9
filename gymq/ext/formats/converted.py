"""A stored run as a file in another form."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from gymq.ext.rollout_files.run_export import whole_file
from gymq.protocol.messages import Outcome


class ConvertedFile:
    """A file with a JSON object a line, of the rollouts that have a form of its kind. Use it as a context manager.

    It is there once all of them are in it.

    Attributes:
        num_written: objects so far.
        num_left_out: rollouts that have no form of this kind.
    """

    def __init__(self, output: Path) -> None:
        self.num_written = self.num_left_out = 0
        self._whole = whole_file(output)

    def __enter__(self) -> Self:
        self._file = self._whole.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._whole.__exit__(kind, error, traceback)

    def add(self, outcome: Outcome) -> None:
        """Add an outcome; what is not written of it depends on the form."""
        raise NotImplementedError

    def _put(self, made: bytes) -> None:
        """Write an object as a line."""
        self._file.write(made + b"\n")
        self.num_written += 1
