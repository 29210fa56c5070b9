"""Reading a program out of a reply."""

from __future__ import annotations

_OPENING, _CLOSING = "```python", "```"


def last_python_block(text: str) -> str | None:
    """Return what follows the last opening fence for Python up to the next three backticks, as it stands there.

    Args:
        text: a reply without carriage returns.

    Returns:
        None if there is no such fence, or it is not closed, or nothing stands between.
    """
    _, opening, rest = text.rpartition(_OPENING)
    code, closing, _ = rest.partition(_CLOSING)
    return code if opening and closing and code else None
