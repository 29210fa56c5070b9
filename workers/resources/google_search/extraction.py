"""The main text of a page, found by trafilatura. It runs in a process: a page can make it compute for long."""

from __future__ import annotations

import logging

import trafilatura


def main_text(page: bytes) -> str | None:
    """Return the text without menus, advertisements and the like; None if there is none."""
    logging.disable(logging.CRITICAL)  # it complains about every page it cannot parse
    return trafilatura.extract(page)


def shortened(text: str) -> str:
    """Cut a text of more than 10,000 words down to its first and last 5,000 characters."""
    return text if len(text.split()) <= 10_000 else f"{text[:5000]}...{text[-5000:]}"
