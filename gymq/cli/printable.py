"""Text by models and strangers, made safe for a terminal."""

from __future__ import annotations

import re

from rich.text import Text

# Everything that moves the cursor, starts an escape sequence or turns the direction; line ends and tabs stay.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str, style: str = "") -> Text:
    """The text as it is, markup not interpreted, with control characters shown as `<1b>`."""
    shown = _CONTROL.sub(lambda match: f"<{ord(match[0]):02x}>", text.replace("\r\n", "\n"))
    return Text(shown, style=style)


def first_words(text: str, limit: int) -> Text:
    """The beginning of a text on one line, `limit` characters at most."""
    line = " ".join(text[: limit * 4].split())
    return printable(line if len(line) <= limit else f"{line[: limit - 1]}…")
