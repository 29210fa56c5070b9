"""Hiding credentials in what people read."""

from __future__ import annotations

import re


def redact(url: str) -> str:
    """`url` (or a list of URLs, or a text with URLs) for display: what stands before an "@" is replaced by "***"."""
    return re.sub(r"(^|://)(?:(?!://)\S)*@", r"\1***@", url)
