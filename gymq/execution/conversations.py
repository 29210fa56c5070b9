"""The conversations that a model worker keeps, so that a call brings only what is new in its own."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple

from gymq.bus import unguessable
from gymq.failures import RolloutError
from gymq.protocol import tokens
from gymq.protocol.messages import FailureClass

_ITEM_BYTES = 500  # of a small item as Python objects
_WITHOUT_SIZE = frozenset({type(None), bool, int, float})  # these are part of that

Item = dict[str, Any]


class ConversationState(NamedTuple):
    """A conversation up to a reply."""

    items: list[Item]
    chain: tokens.TokenChain
    num_bytes: int  # about, of all of the items
    kept: Any  # by the model, see `ModelMemory`


class _Conversation:
    """The last states of a conversation, the newest last, and the bytes of the largest: they share their items."""

    __slots__ = ("num_bytes", "states")

    def __init__(self) -> None:
        self.states: dict[str, ConversationState] = {}
        self.num_bytes = 0

    def add(self, name: str, state: ConversationState) -> None:
        # The newest state is kept, and the one before it for a call whose reply was lost.
        if len(self.states) == 2:
            del self.states[next(iter(self.states))]
        self.states[name] = state
        self.num_bytes = max([kept.num_bytes for kept in self.states.values()])


class Conversations:
    """Conversations by session; each keeps its last states under names that cannot be guessed."""

    def __init__(self, max_bytes: int = 256 << 20) -> None:
        """Prepare to keep conversations.

        Args:
            max_bytes: of text and tokens; conversations that were used least recently are forgotten.
        """
        self.num_bytes = 0
        self._max_bytes = max_bytes
        self._by_session: OrderedDict[str, _Conversation] = OrderedDict()
        self._names = unguessable.texts(16)

    def find(self, session: str, state: str, num_items: int) -> ConversationState | None:
        """Return a state of a conversation; None if it is not kept, or is that of another session.

        Raises:
            RolloutError: BAD_REQUEST; it has another number of items.
        """
        conversation = self._by_session.get(session)
        kept = None if conversation is None else conversation.states.get(state)
        if kept is not None and len(kept.items) != num_items:
            text = f"the conversation has {len(kept.items)} items before this call, not {num_items}"
            raise RolloutError(FailureClass.BAD_REQUEST, text)
        return kept

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
        new_bytes = _num_bytes(new) * (1 if kept is None else 2)
        num_bytes = (before.num_bytes if before else 0) + new_bytes
        if num_bytes > self._max_bytes:
            return None
        conversation = self._by_session.get(session)
        if conversation is None:
            conversation = self._by_session[session] = _Conversation()
        else:
            self._by_session.move_to_end(session)
        self.num_bytes -= conversation.num_bytes
        name = next(self._names)
        conversation.add(name, ConversationState([*(before.items if before else ()), *new], chain, num_bytes, kept))
        self.num_bytes += conversation.num_bytes
        while self.num_bytes > self._max_bytes:
            _, forgotten = self._by_session.popitem(last=False)
            self.num_bytes -= forgotten.num_bytes
        return name

    def __len__(self) -> int:
        return len(self._by_session)


def _num_bytes(values: Iterable[object]) -> int:
    """Return about how many bytes values take; nothing that a message holds is nested too deep for this."""
    total = 0
    for value in values:
        if type(value) in _WITHOUT_SIZE:
            continue
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, dict):
            total += _ITEM_BYTES + _num_bytes(value.values())
        elif isinstance(value, list):
            total += _ITEM_BYTES + _num_bytes(value)
        elif isinstance(value, array):
            total += len(value) * value.itemsize
        elif isinstance(value, tokens.ContinuedPrompt):
            total += _num_bytes([value.suffix])
    return total
