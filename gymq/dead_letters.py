"""Dead letters: what could not be processed, with one sentence why, for a person to look at."""

from __future__ import annotations

import logging
import time

from gymq import subjects
from gymq.bus import Bus
from gymq.jetstream import JetStream
from gymq.messages import DeadLetter, encode

log = logging.getLogger("gymq.dead_letters")

MAX_BODY_BYTES = 1 << 20


async def bury(bus: Bus, source: str, subject: str, reason: str, body: bytes) -> None:
    """Store a dead letter.

    Args:
        source: which part of gymq gave up: intake, agent, janitor.
        subject: where the body had been published.

    Raises:
        BusError: not stored.
    """
    log.warning("dead letter from %s: %s", subject, reason)
    letter = DeadLetter(subject=subject, reason=reason[:4000], body=body[:MAX_BODY_BYTES], at=time.time())
    await JetStream(bus).store_surely(subjects.dead_letters(source), encode(letter), {}, patience_s=60.0)
