"""The parts of a text that rules speak of; sentences and tokens are those of instruction_following."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable

_PUNCTUATION = str.maketrans("", "", string.punctuation)
Rule = Callable[..., bool]
"""Takes the text, and its arguments by keyword. An error means that the text does not follow it."""

OUTER = string.punctuation + " "


def bare(text: str) -> str:
    """Return a text without ASCII punctuation, nothing in its place."""
    return text.translate(_PUNCTUATION)


def bare_words(text: str) -> list[str]:
    """Return the words of the bare text in lower case."""
    return bare(text.lower()).split()


def trimmed(text: str) -> str:
    """Return a text without punctuation and blanks at both ends."""
    return text.strip(OUTER)


def runs(text: str) -> list[str]:
    """Return the runs of letters, digits and underscores."""
    return re.findall(r"\w+", text)


def plain(text: str) -> str:
    """Return a text in ASCII: letters without their marks, and nothing in place of what is left."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
