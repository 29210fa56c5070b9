"""The output of a response, read for programs that speak another dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gymq.responses.errors import InvalidReply
from gymq.responses.items import Item


def converted_output(response: Mapping[str, Any], convert: Callable[[Item], Iterable[Item]]) -> list[Item]:
    """Return the items of a response converted to another dialect.

    Raises:
        InvalidReply: that dialect has no form for an item; the path names the item.
    """
    converted: list[Item] = []
    for index, item in enumerate(response["output"]):
        try:
            converted += convert(item)
        except InvalidReply as error:
            raise error.within(f"output[{index}]") from None
    return converted


def texts_and_refusals(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts and refusals of a message that are not empty."""
    content = message["content"]
    for part in [{"text": content}] if isinstance(content, str) else content:
        if text := part.get("text") or part.get("refusal"):
            yield text
