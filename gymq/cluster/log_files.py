"""What the workers of a folder have logged: the newest lines about a rollout or of a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

MOST_LINES = 200
TAIL_BYTES = 1 << 20  # of each file

_SHOWN = ("time", "level", "logger", "worker", "rollout", "message", "traceback")

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def newest_lines(folder: Path, *, worker: str | None = None, rollout: str | None = None) -> list[dict[str, str]]:
    """Return the newest lines, oldest first, of the last `TAIL_BYTES` of each log.

    Args:
        folder: where worker processes write their logs; it need not exist.
        worker: only what this worker wrote, by its id.
        rollout: only what was written about this rollout, `run/task/rollout`.
    """
    found: list[dict[str, str]] = []
    for file in sorted(folder.glob("*.log")):
        found += [line for line in _lines(file) if _fits(line, worker, rollout)]
    return sorted(found, key=lambda line: line.get("time", ""))[-MOST_LINES:]


def _fits(line: dict[str, str], worker: str | None, rollout: str | None) -> bool:
    return worker in (None, line.get("worker")) and rollout in (None, line.get("rollout"))


def _lines(file: Path) -> list[dict[str, str]]:
    try:
        with file.open("rb") as source:
            size = source.seek(0, 2)
            source.seek(max(0, size - TAIL_BYTES))
            tail = source.read()
    except OSError:  # it was rotated meanwhile
        return []
    lines: list[dict[str, str]] = []
    for line in tail.splitlines():
        try:
            entry = _decode(line)
        except msgspec.DecodeError:  # the output of a program, or a line that was cut
            continue
        lines.append({name: str(entry[name]) for name in _SHOWN if name in entry})
    return lines
