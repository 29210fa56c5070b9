"""A stored run as the files that a collection of it would have written, to profile it or to hand it on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, Self

import msgspec

from gymq.data.jsonl import parse_object
from gymq.data.rows import AGENT_REF, ROLLOUT_INDEX, TASK_INDEX
from gymq.data.run_files import Appender, RunFiles, output_row
from gymq.defaults import TokenForm
from gymq.protocol.messages import Outcome, VerifiedRollout


class RunExport:
    """Writes outcomes into a materialised file and an output file. Use it as a context manager.

    Rollouts that have no reward get a materialised row only.
    """

    def __init__(self, output: Path, token_ids: TokenForm = "full") -> None:
        self._token_ids = token_ids
        self.files = RunFiles(output)
        self._rows = Appender(self.files.materialised)
        self._results = Appender(self.files.output)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with closing(self._results):
            self._rows.close()

    def add(self, outcome: Outcome) -> None:
        """Add an outcome.

        Raises:
            JsonlError: its row is not a JSON object.
        """
        fields: dict[str, Any] = dict(parse_object(outcome.row))
        fields[TASK_INDEX] = outcome.task_index
        fields[ROLLOUT_INDEX] = outcome.rollout_index
        # The agent that made it, whatever the row of a submission says.
        fields[AGENT_REF] = {"name": outcome.agent}
        self._rows.write(msgspec.json.encode(fields))
        if isinstance(outcome, VerifiedRollout):
            self._results.write(output_row(outcome, self._token_ids))


class ConvertedFile:
    """A file with a JSON object a line, of the rollouts that have a form of its kind. Use it as a context manager.

    Attributes:
        num_written: objects so far.
        num_left_out: rollouts that have no form of this kind.
    """

    def __init__(self, output: Path) -> None:
        self.num_written = self.num_left_out = 0
        self._file = Appender(output)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, outcome: Outcome) -> None:
        """Add an outcome; what is not written of it depends on the form."""
        raise NotImplementedError
