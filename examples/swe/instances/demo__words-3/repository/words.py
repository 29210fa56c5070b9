"""Counting in texts."""


def count_words(text: str) -> int:
    """How many words a text has."""
    return len(text.split(" ")) if text else 0
