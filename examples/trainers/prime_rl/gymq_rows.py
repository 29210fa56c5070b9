"""Rows of gymq as a taskset of verifiers: `env = { taskset = { id = "gymq_rows", rows = "rows.jsonl" } }`.

It runs in the environment of prime-rl and needs nothing of gymq there. The rollouts are those of `gymq env-server`.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf

__all__ = ["GymqRows"]


class GymqRow(vf.TaskData):
    """A row, as its JSON text: so its numbers and the order of its fields stay as they are."""

    row: str


class GymqTask(vf.Task[GymqRow]):
    """A task that is rolled out and scored elsewhere."""


class GymqRowsConfig(vf.TasksetConfig):
    rows: Path
    """File with a row on each line."""
    agent: str | None = None
    """Agent instance for rows that name none."""


class GymqRows(vf.Taskset[GymqTask, GymqRowsConfig]):
    def load(self) -> Iterator[GymqTask]:
        with self.config.rows.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield GymqTask(GymqRow(row=self._complete(line.strip(), number)), self.config.task)

    def _complete(self, line: str, number: int) -> str:
        where = f"{self.config.rows}:{number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{where}: the line is not valid JSON: {error}") from None
        if not isinstance(row, dict):
            raise ValueError(f"{where}: the line is JSON, but not an object")
        line = f'{line[:-1]}, "_ng_source": {json.dumps(where)}}}'
        if "agent_ref" in row:
            return line
        if self.config.agent is None:
            raise ValueError(f"{where}: the row names no agent: it needs `agent_ref`, or the taskset `agent`")
        return f'{line[:-1]}, "agent_ref": {json.dumps({"name": self.config.agent})}}}'
