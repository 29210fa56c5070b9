"""A prefix cache as engines have one: which tokens of a prompt it would not have to compute.

Tokens are kept in blocks of 16. A block is known by its tokens and all tokens before it, so it serves every prompt that
begins the same. When there is no room the block that was used least recently goes. At least one token of a prompt is
computed, since a reply begins with it. These are the rules of vLLM's automatic prefix caching:
https://docs.vllm.ai/en/latest/design/prefix_caching.html
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator

BLOCK_TOKENS = 16


class PrefixCache:
    """Counts what it would have had; it holds the names of blocks only."""

    def __init__(self, num_blocks: int) -> None:
        """
        Args:
            num_blocks: that fit in.
        """
        self._num_blocks = num_blocks
        self._blocks: OrderedDict[bytes, None] = OrderedDict()  # the least recently used first

    def __len__(self) -> int:
        return len(self._blocks)

    def num_cached(self, prompt: array[int]) -> int:
        """Return how many tokens of a prompt are cached."""
        count = 0
        for name in _names(prompt[: len(prompt) - 1]):
            if name not in self._blocks:
                break
            self._blocks.move_to_end(name)
            count += BLOCK_TOKENS
        return count

    def keep(self, ids: array[int]) -> None:
        """Keep the tokens of a prompt and its reply, as far as they fill blocks and fit in."""
        # The end first: of one text the beginning must stay longest, nothing behind a gap can be used.
        for name in reversed(list(_names(ids))):
            self._blocks[name] = None
            self._blocks.move_to_end(name)
        while len(self._blocks) > self._num_blocks:
            self._blocks.popitem(last=False)


def _names(ids: array[int]) -> Iterator[bytes]:
    """A name for each full block."""
    name = b""
    for start in range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        name = hashlib.blake2b(ids[start : start + BLOCK_TOKENS].tobytes(), key=name, digest_size=16).digest()
        yield name
