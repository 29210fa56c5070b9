"""Text of a wanted length, and a toy tokeniser: four bytes of UTF-8 are one token.

It stands in for a real tokeniser where only counts, sizes and the chaining of turns matter.
"""

from __future__ import annotations

import random
import struct
from array import array
from typing import NamedTuple

VOCABULARY_SIZE = 65521  # ids of text are below it
END_OF_TURN = VOCABULARY_SIZE

_BYTES_PER_TOKEN = 4
_POOL_TOKENS = 1 << 15


class Sampled(NamedTuple):
    """The tokens of a text."""

    ids: array[int]
    log_probs: array[float]


def num_tokens(num_bytes: int) -> int:
    """Tokens of a text of so many bytes."""
    return -(-num_bytes // _BYTES_PER_TOKEN)


def tokens(text: bytes) -> array[int]:
    """Return the token ids of a text."""
    count = num_tokens(len(text))
    values = struct.unpack(f"<{count}I", text.ljust(count * _BYTES_PER_TOKEN))
    return array("i", [value % VOCABULARY_SIZE for value in values])


def sampled(ids: array[int]) -> Sampled:
    """Return the ids with a made-up log prob each, between -4 and 0, exact in float32."""
    return Sampled(ids, array("f", [-(token % 512) / 128.0 for token in ids]))


class Filler:
    """A pool of meaningless words of one token each, from which texts are cut."""

    def __init__(self) -> None:
        rng = random.Random(0)
        words = [a + b + c + " " for a in "bdfgklmnprst" for b in "aeiou" for c in "dlmnrst"]
        self._text = "".join(rng.choices(words, k=_POOL_TOKENS))
        self._sampled = sampled(tokens(self._text.encode()))

    def cut(self, uniform: float, count: int) -> tuple[str, Sampled]:
        """A text of `count` tokens; `uniform` in (0, 1) says which."""
        start = int(uniform * _POOL_TOKENS)
        stop = start + count
        text, (ids, log_probs) = self._text, self._sampled
        if stop > _POOL_TOKENS:
            copies = -(-stop // _POOL_TOKENS)
            text, ids, log_probs = text * copies, ids * copies, log_probs * copies
        cut = slice(start, stop)
        return text[start * _BYTES_PER_TOKEN : stop * _BYTES_PER_TOKEN], Sampled(ids[cut], log_probs[cut])
