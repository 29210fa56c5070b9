"""What an endpoint sends slightly off, and is read all the same: counted by kind, each warned of once in a run."""

from __future__ import annotations

import logging
from collections import Counter

log = logging.getLogger("gymq.endpoint_model")

_MAX_WARNED = 4096  # kinds in runs; after so many, warnings may come again


class Oddities:
    """The oddities that one model has read."""

    def __init__(self, model: str) -> None:
        self.counts: Counter[str] = Counter()
        self._model = model
        self._warned: set[tuple[str, str]] = set()

    def note(self, run: str, kind: str, example: str) -> None:
        """Count one oddity of a run."""
        self.counts[kind] += 1
        if (run, kind) in self._warned:
            return
        if len(self._warned) == _MAX_WARNED:
            self._warned.clear()
        self._warned.add((run, kind))
        log.warning("%s, run %s: there are %s%s", self._model, run, kind, f", such as: {example}" if example else "")
