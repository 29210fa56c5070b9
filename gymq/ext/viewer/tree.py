"""Rendered text as trees of elements, which the page builds node by node: no markup is written, sent or parsed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Node = str | list[Any]
"""A text, or an element: `[tag, attributes, *children]`."""


def element(tag: str, attributes: dict[str, str] | None = None, children: Iterable[Node] = ()) -> list[Any]:
    """Return an element; `children` are nodes."""
    return [tag, attributes or {}, *children]
