"""How much of a conversation a worker of a model keeps."""

from typing import Any

import pytest

from gymq.protocol.conversation import ConversationItems, HeldConversation
from gymq.testing import reply

ITEMS = reply("a", "b")["output"]


@pytest.mark.parametrize(
    ("model", "held", "num"),
    [("m", ITEMS[:1], 1), ("m", ITEMS, 2), ("other", ITEMS[:1], 0), ("m", ITEMS[1:], 0), ("m", [*ITEMS, *ITEMS], 0)],
)
def test_only_a_beginning_that_the_same_model_has_is_kept(model: str, held: list[Any], num: int) -> None:
    items = ConversationItems(ITEMS, HeldConversation("m", "w", "s", held))
    assert items.num_held(model) == num
    assert ConversationItems(ITEMS).num_held(model) == 0
