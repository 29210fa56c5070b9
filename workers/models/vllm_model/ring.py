"""Which engine a session goes to, and which engines are left alone because they did not answer."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence
from dataclasses import dataclass

FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0


@dataclass
class _Ejected:
    retry_at: float  # on the caller's clock, seconds
    pause_s: float


class Ring:
    """Every session has a home, the same in all processes; if that is down, the next engine that is up.

    An ejected engine gets one request when its pause is over. That brings it back, or doubles the pause.
    """

    def __init__(self, num_engines: int) -> None:
        self._num_engines = num_engines
        self._ejected: dict[int, _Ejected] = {}

    def home(self, session: str) -> int:
        """The engine of a session while all are up: the first 8 bytes of its SHA-256 modulo their number."""
        return int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "big") % self._num_engines

    def choose(self, session: str, now: float, tried: Container[int] = (), loads: Sequence[int] = ()) -> int:
        """Return the engine for a request.

        Args:
            session: empty if the request belongs to none; then it goes where the load is least.
            now: seconds on any clock that never goes back.
            tried: engines that this request has been to; not all of them.
            loads: requests on their way to each engine.
        """
        if session:
            home = self.home(session)
            order = [(home + step) % self._num_engines for step in range(self._num_engines)]
        else:
            order = sorted(range(self._num_engines), key=lambda engine: loads[engine] if loads else 0)
        left = [engine for engine in order if engine not in tried]
        for engine in left:
            ejected = self._ejected.get(engine)
            if ejected is None:
                return engine
            if now >= ejected.retry_at:
                ejected.retry_at = now + ejected.pause_s  # others do not wait for the outcome
                return engine
        return left[0]  # all are down: better one more try than none

    def eject(self, engine: int, now: float) -> None:
        """An engine could not be reached."""
        before = self._ejected.get(engine)
        pause_s = FIRST_PAUSE_S if before is None else min(2.0 * before.pause_s, LONGEST_PAUSE_S)
        self._ejected[engine] = _Ejected(now + pause_s, pause_s)

    def restore(self, engine: int) -> bool:
        """Note that an engine answered; return whether it had been ejected."""
        return self._ejected.pop(engine, None) is not None
