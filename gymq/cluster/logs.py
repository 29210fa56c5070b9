"""Structured logs: one JSON object a line on standard error, with the rollout it belongs to; and how they are read."""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from gymq.authoring import current_call
from gymq.protocol.decoding import UNDECODABLE
from gymq.redaction import redact

_SHOWN = ("time", "level", "logger", "worker", "rollout", "message", "traceback")

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class _JsonLines(logging.Formatter):
    def __init__(self, worker: str) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "worker": self._worker,
            "message": redact(record.getMessage()),
        }
        rollout = current_call.get().rollout
        if rollout != "-":
            entry["rollout"] = rollout
        if record.exc_info:
            entry["traceback"] = redact(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False)


def configure(worker: str, level: str) -> None:
    """Send all logs of this process to standard error.

    Args:
        level: debug, info, warning or error.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines(worker))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("nats").setLevel(logging.ERROR)
    logging.getLogger("httpx").setLevel(logging.WARNING)


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


def shown(line: str) -> str:
    """Return a line of a log as people read it: the message of one that was logged, any other as it is."""
    try:
        return str(_decode(line).get("message", line))
    except UNDECODABLE:
        return line


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
