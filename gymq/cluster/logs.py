"""Structured logs: one JSON object a line on standard error, with the rollout it belongs to; and how they are read."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

import msgspec

from gymq.authoring import current_call
from gymq.protocol.decoding import UNDECODABLE
from gymq.redaction import redact

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


def shown(line: str) -> str:
    """Return a line of a log as people read it: the message of one that was logged, any other as it is."""
    try:
        return str(_decode(line).get("message", line))
    except UNDECODABLE:
        return line
