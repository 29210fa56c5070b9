"""Patterns of schemas, which are ECMAScript's: they may name Unicode properties, which Python's `re` does not know."""

from __future__ import annotations

import functools
import re
from typing import Any

_DOLLAR = re.compile(r"\\.|\[(?:\\.|[^\]\\])*+(?:\]|\Z)|(\$)", re.DOTALL)

error = re.error  # under the names of `re`, since it takes its place


def search(pattern: str, text: str) -> Any:
    """Return the first match of a pattern in a text, if there is one.

    Raises:
        re.error: it is malformed.
    """
    return compile(pattern).search(text)


@functools.lru_cache(256)
def compile(pattern: str) -> Any:
    """Return the pattern of `re`, or of the package `regex` where it names a Unicode property.

    Raises:
        re.error: it is malformed.
    """
    pattern = _DOLLAR.sub(lambda found: r"\Z" if found[1] else found[0], pattern)  # not before a line's end at the end
    if re.search(r"\\[pP]\{", pattern) is None:
        return re.compile(pattern, re.ASCII)
    import regex

    try:
        return regex.compile(pattern)
    except regex.error as problem:
        raise re.error(str(problem)) from None
