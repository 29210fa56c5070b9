"""The messages of which the journal of a rollout is made."""

from __future__ import annotations

import msgspec

from gymq.protocol.messages import Index, Message, SessionSubject


class Effect(msgspec.Struct, array_like=True):
    """One call of an agent and its reply."""

    number: int  # position among the effects of the attempt
    key: str  # identifies the call, unique in the attempt; a replay makes the same call
    reply: bytes  # the encoded reply
    alone: bool = True  # no other effect was in flight at the same time


class JournalEntry(Message, tag="journal_entry.v2", kw_only=True):
    """Effects in order. Entries of earlier attempts, or of a task that replaces another failure, do not count."""

    attempt: Index
    num_failures: Index = 0  # earlier attempts that the rollout's own failures ended, not outages or lost sessions
    worker: str
    effects: list[Effect] = msgspec.field(default_factory=list)
    session: SessionSubject | None = None  # where the session was moved to
    replaces: Index | None = None  # as in the task
    alone: bool = False  # from here on nothing else worked in the agent's process
    survived: bool = False  # the process that worked on it alone did not die of it
