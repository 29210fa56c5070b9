"""A stored run as the files that a collection of it would have written, to profile it or to hand it on."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from gymq.jsonl import parse_object
from gymq.messages import Outcome, Rollout
from gymq.rows import AGENT_REF, ROLLOUT_INDEX, TASK_INDEX
from gymq.run_files import Appender, RunFiles, output_row


class RunExport:
    """Writes outcomes into a materialised file and an output file. Use it as a context manager.

    Rollouts that have no reward get a materialised row only.
    """

    def __init__(self, output: Path) -> None:
        self.files = RunFiles(output)
        self._rows = Appender(self.files.materialised)
        self._results = Appender(self.files.output)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._rows.close()
        self._results.close()

    def add(self, outcome: Outcome) -> None:
        """Add an outcome.

        Raises:
            JsonlError: its row is no JSON object.
        """
        members: dict[str, Any] = dict(parse_object(outcome.row))
        members[TASK_INDEX] = outcome.task_index
        members[ROLLOUT_INDEX] = outcome.rollout_index
        # The agent that made it, whatever the row of a submission says.
        members[AGENT_REF] = {"name": outcome.agent}
        self._rows.write(msgspec.json.encode(members))
        if isinstance(outcome, Rollout):
            self._results.write(output_row(outcome))
