"""The items of a conversation as the caller has them, and how many of them a worker keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Item = Mapping[str, Any]


class HeldConversation(NamedTuple):
    """The part of a conversation that a worker of a model keeps."""

    model: str
    worker: str
    state: str  # names it there
    items: list[Item]


class ConversationItems(list[Item]):
    """All items of a conversation, for its next model call.

    An item that was sent is never changed in place, only replaced in the list.
    """

    def __init__(self, items: Iterable[Item] = (), held: HeldConversation | None = None) -> None:
        super().__init__(items)
        self.held = held

    def num_held(self, model: str) -> int:
        """Return how many of the items a worker of the model keeps; 0 if it keeps something else."""
        held = self.held
        if held is None or held.model != model:
            return 0
        num = len(held.items)
        # Lists of identical objects are compared without looking into them.
        return num if len(self) >= num and self[:num] == held.items else 0
