"""A stored run as the files that a collection of it would have written, to profile it or to hand it on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from gymq.data.disk_index import DoneRollouts
from gymq.data.jsonl import JsonlError, atomic_write, parse_object
from gymq.data.rows import AGENT_REF, ROLLOUT_INDEX, TASK_INDEX
from gymq.data.run_files import RunFiles, output_row
from gymq.defaults import TokenForm
from gymq.errors import UsageError
from gymq.protocol.messages import Outcome, VerifiedRollout


class RunExport:
    """Writes outcomes into a materialised file and an output file, which are there once all are in them.

    Rollouts that have no reward get a materialised row only. Use it as a context manager.
    """

    def __init__(self, output: Path, token_ids: TokenForm = "full") -> None:
        self._token_ids = token_ids
        self.files = RunFiles(output)

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._results = opened.enter_context(whole_file(self.files.output))
            self._rows = opened.enter_context(whole_file(self.files.materialised))
            self._known = opened.enter_context(DoneRollouts())
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, traceback)

    def add(self, outcome: Outcome) -> None:
        """Add an outcome; one may follow the failure that it replaced while they were read."""
        try:
            fields: dict[str, Any] = dict(parse_object(outcome.row))
        except JsonlError:
            fields = {}  # it failed because its row is not an object
        fields[TASK_INDEX] = outcome.task_index
        fields[ROLLOUT_INDEX] = outcome.rollout_index
        # The agent that made it, whatever the row of a submission says.
        fields[AGENT_REF] = {"name": outcome.agent}
        row = msgspec.json.encode(fields)
        if self._known.add(outcome.task_index, outcome.rollout_index):
            self._rows.write(row + b"\n")
        if isinstance(outcome, VerifiedRollout):
            self._results.write(output_row(msgspec.structs.replace(outcome, row=row), self._token_ids) + b"\n")


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that is there once the block has ended without an exception.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            yield file
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
