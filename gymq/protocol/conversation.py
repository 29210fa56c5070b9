"""The items of a conversation on the side that sends them, and what a worker keeps of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Item = Mapping[str, Any]


class HeldConversation(NamedTuple):
    """What a worker of a model keeps of a conversation."""

    model: str
    worker: str
    state: str  # names it there
    items: list[Item]


class ConversationItems(list[Item]):
    """The whole of a conversation as its next model call sees it.

    An item that was sent is not changed in place: one that differs takes its place in the list.
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
        # Equal lists of the very same items are compared without a look into them.
        return num if len(self) >= num and self[:num] == held.items else 0
