"""A stored run in the form of another program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gymq.data.failure_status import StatusError
from gymq.data.jsonl import JsonlError
from gymq.ext.formats.converted import ConvertedFile
from gymq.protocol.messages import Outcome, VerifiedRollout
from gymq.protocol.tokens import to_json
from gymq.responses import ResponsesError


class TrajectoryFile(ConvertedFile):
    """Writes the verified rollouts of a run, one JSON object a line."""

    def __init__(self, output: Path, write: Callable[[VerifiedRollout], dict[str, Any]]) -> None:
        super().__init__(output)
        self._write = write

    def add(self, outcome: Outcome) -> None:
        """Add an outcome; failures are not written."""
        if not isinstance(outcome, VerifiedRollout):
            return
        try:
            made = to_json(self._write(outcome))
        except (JsonlError, ResponsesError, StatusError):
            self.num_left_out += 1
            return
        self._put(made)
