"""The newest lines in the logs of worker processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from gymq.protocol.decoding import UNDECODABLE

_SHOWN = ("time", "level", "logger", "worker", "rollout", "message", "traceback")

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def newest_lines(folder: Path, *, worker: str | None = None, rollout: str | None = None) -> list[dict[str, str]]:
    """Return the newest lines, oldest first, of the last MiB of each log.

    Args:
        folder: where worker processes write their logs; it need not exist.
        worker: only what this worker wrote, by its id.
        rollout: only what was written about this rollout, `run/task/rollout`.
    """
    found: list[dict[str, str]] = []
    for file in sorted(folder.glob("*.log")):
        found += [line for line in _lines(file) if _fits(line, worker, rollout)]
    return sorted(found, key=lambda line: line.get("time", ""))[-200:]


def _fits(line: dict[str, str], worker: str | None, rollout: str | None) -> bool:
    return worker in (None, line.get("worker")) and rollout in (None, line.get("rollout"))


def _lines(file: Path) -> list[dict[str, str]]:
    try:
        with file.open("rb") as source:
            size = source.seek(0, 2)
            source.seek(max(0, size - (1 << 20)))
            tail = source.read()
    except OSError:  # it was rotated meanwhile
        return []
    lines: list[dict[str, str]] = []
    for line in tail.splitlines():
        try:
            entry = _decode(line)
        except UNDECODABLE:
            continue  # the output of a program, or a line that was cut
        lines.append({name: str(entry[name]) for name in _SHOWN if name in entry})
    return lines
