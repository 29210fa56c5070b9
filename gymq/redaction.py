"""Hiding credentials in what people read."""

from __future__ import annotations

import re
from typing import Any

SECRET_NAME = re.compile(r"(^|[^a-z])(tokens?|keys?|secrets?|passwords?|authorization|credentials?)$", re.IGNORECASE)
"""Names of options whose texts are secrets."""

_MIN_CHARS = 8  # hiding what is shorter would make other texts unreadable
_hidden: set[str] = set()


def hide(secret: str) -> None:
    """Have `redact` replace this text too, in this process from now on. Texts of fewer than 8 characters stay."""
    if len(secret) >= _MIN_CHARS:
        _hidden.add(secret)


def hide_options(options: Any, name: str = "") -> None:
    """`hide` every text in a worker's options that is below a name like `api_key`."""
    if isinstance(options, dict):
        for key, value in options.items():
            hide_options(value, key if SECRET_NAME.search(key) else name)
    elif isinstance(options, list):
        for element in options:
            hide_options(element, name)
    elif isinstance(options, str) and name:
        hide(options)


def redact(text: str) -> str:
    """A text, for example a URL, for display: what stands before an "@" in a URL and what is hidden becomes "***"."""
    for secret in _hidden:
        text = text.replace(secret, "***")
    return re.sub(r"(^|://)(?:(?!://)\S)*@", r"\1***@", text)
