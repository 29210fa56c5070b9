"""The conversations that a model worker keeps, so that a call brings only what is new in its own."""

from __future__ import annotations

import secrets
from array import array
from collections import OrderedDict
from typing import Any, NamedTuple

from gymq.failures import RolloutError
from gymq.protocol import tokens
from gymq.protocol.messages import FailureClass

MAX_BYTES = 256 * 1024 * 1024
"""Of text and tokens that a worker keeps for one model; those used least recently are forgotten."""

STATES = 2
"""That are kept of a conversation: the newest, and the one before it for a call whose reply was lost."""

_ITEM_BYTES = 500  # of a small item as Python objects

Item = dict[str, Any]


class ConversationState(NamedTuple):
    """A conversation up to a reply."""

    items: list[Item]
    chain: tokens.TokenChain
    num_bytes: int  # about, of all of the items
    kept: Any  # by the model, see `ModelMemory`


class Conversations:
    """Conversations by session; each keeps its last states under names that cannot be guessed."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.num_bytes = 0
        self._max_bytes = max_bytes
        self._by_session: OrderedDict[str, OrderedDict[str, ConversationState]] = OrderedDict()

    def find(self, session: str, state: str, num_items: int) -> ConversationState | None:
        """Return a state of a conversation; None if it is not kept, or is that of another session.

        Raises:
            RolloutError: BAD_REQUEST; it has another number of items.
        """
        states = self._by_session.get(session)
        found = None if states is None else states.get(state)
        if found is not None and len(found.items) != num_items:
            text = f"the conversation has {len(found.items)} items before this call, not {num_items}"
            raise RolloutError(FailureClass.BAD_REQUEST, text)
        return found

    def keep(
        self,
        session: str,
        before: ConversationState | None,
        new: list[Item],
        chain: tokens.TokenChain,
        kept: Any = None,
    ) -> str | None:
        """Keep a conversation in its next state; return the state's name, or None if it is too large to keep.

        Args:
            new: items after the state before.
            chain: the tokens of all items.
            kept: what the model keeps of them; taken to be as large as the items.
        """
        new_bytes = sum(map(_num_bytes, new)) * (1 if kept is None else 2)
        num_bytes = (before.num_bytes if before else 0) + new_bytes
        if num_bytes > self._max_bytes:
            return None
        states = self._by_session.pop(session, None) or OrderedDict()
        self.num_bytes -= _largest(states)
        name = secrets.token_hex(16)
        states[name] = ConversationState([*(before.items if before else ()), *new], chain, num_bytes, kept)
        while len(states) > STATES:
            states.popitem(last=False)
        self._by_session[session] = states
        self.num_bytes += _largest(states)
        while self.num_bytes > self._max_bytes:
            _, forgotten = self._by_session.popitem(last=False)
            self.num_bytes -= _largest(forgotten)
        return name

    def __len__(self) -> int:
        return len(self._by_session)


def _largest(states: OrderedDict[str, ConversationState]) -> int:
    """Return the bytes of a conversation: its states share their items."""
    return max((state.num_bytes for state in states.values()), default=0)


def _num_bytes(value: object) -> int:
    """Return about how many bytes a value takes; nothing that a message holds is nested too deep for this."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, array):
        return 2 * len(value) * value.itemsize  # on its item and in the chain
    if isinstance(value, tokens.ContinuedPrompt):
        return _num_bytes(value.suffix)
    if isinstance(value, dict):
        return _ITEM_BYTES + sum(map(_num_bytes, value.values()))
    if isinstance(value, list):
        return _ITEM_BYTES + sum(map(_num_bytes, value))
    return 0
