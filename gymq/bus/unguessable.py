"""Random texts that cannot be guessed."""

from __future__ import annotations

import os
from collections.abc import Iterator


def texts(num_bytes: int) -> Iterator[str]:
    """Yield random texts of `num_bytes` bytes as hexadecimal digits; the system is asked for many at a time.

    `secrets.token_hex` asks it each time, which takes longer than anything else about a small message.
    """
    length = 2 * num_bytes
    while True:
        digits = os.urandom(256 * num_bytes).hex()
        for start in range(0, len(digits), length):
            yield digits[start : start + length]
