"""Counting the tokens of a text, with a tokenizer or by an estimate."""

from __future__ import annotations

import re
from collections.abc import Callable

from gymq.errors import UsageError

_PIECE = re.compile(r" ?[^\W\d_]+|\d{1,3}|[^\w\s]|_|\s")


def estimated_tokens(text: str) -> int:
    """Estimate the tokens of a text: a word of up to 7 letters, three digits and a mark are one each.

    It needs no files and gives the same number on every machine. A tokenizer may count a third more or fewer.
    """
    return sum(1 + (len(piece) - 1) // 8 for piece in _PIECE.findall(text))


def token_counter(tokenizer: str | None) -> Callable[[str], int]:
    """Return a function that counts tokens.

    Args:
        tokenizer: a folder, or a name on the Hugging Face hub; None: `estimated_tokens`.

    Raises:
        UsageError: it cannot be loaded, or `transformers` is not installed.
    """
    if tokenizer is None:
        return estimated_tokens
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise UsageError('transformers is not installed: pip install "gymq[chat-template]"') from None
    try:
        loaded = AutoTokenizer.from_pretrained(tokenizer)
    except (OSError, ValueError) as error:
        raise UsageError(f"the tokenizer {tokenizer} cannot be loaded: {' '.join(str(error).split())}") from None
    return lambda text: len(loaded.encode(text, add_special_tokens=False))
