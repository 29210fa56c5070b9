"""Files of rollouts as lines of a result file."""

from __future__ import annotations

import re
from pathlib import Path

from gymq.data.jsonl import JsonlFile, LineSource
from gymq.extensions import extensions

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


def rollout_lines(path: Path) -> LineSource:
    """Return the lines of a file of rollouts: results of gymq and of NeMo Gym as they are.

    Files of other programs are those that an entry point `gymq.rollout_files` knows.
    """
    for found in extensions("rollout_files"):
        lines: LineSource | None = found.load()(path)
        if lines is not None:
            return lines
    return JsonlFile(path)


def name_of(text: str) -> str:
    """Return a text as the name of an agent or a run."""
    return _NOT_IN_NAMES.sub("-", text)[:64] or "unknown"
