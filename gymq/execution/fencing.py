"""Agent processes that no longer have a rollout: another one took it over while they were frozen, or cut off."""

from __future__ import annotations

from gymq.bus import Bus, BusError, blobs, streams
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.journal_messages import JournalEntry
from gymq.protocol.messages import BadMessage, BlobRef, Task

PATIENCE_S = 60.0
"""How long a journal waits for a server that does not answer."""

decode_entry = Decoder(JournalEntry, BlobRef)


class Fenced(BusError):
    """Another agent process has taken the rollout over."""


async def check_not_taken_over(bus: Bus, task: Task) -> None:
    """Make sure of the same as `Journal.confirm`, for the first delivery of a task, where it has no journal.

    Each later delivery begins one, which has an entry.

    Raises:
        Fenced: another process has taken over the rollout.
    """
    subject = subjects.JOURNAL.of(*task.rollout_id)
    newest = await bus.retry_read(lambda: bus.js.last(streams.JOURNAL, subject), patience_s=PATIENCE_S)
    if newest is None:
        return
    try:
        entry = await blobs.read(bus, newest.data, decode_entry, "rollout")
    except BadMessage:
        return
    if entry.replaces == task.replaces:
        raise Fenced(f"{subject} was taken over")
