"""What a policy's own distributions are taken from, for comparison with what it reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gymq.ext.policy_check.distribution import NextToken, NotComparable


class LogProbSource(Protocol):
    """Computes the distributions of tokens, and the ids of prompts, apart from the calls that are checked.

    Attributes:
        eos: ids that end a reply; empty if they are not known.
        defaults: sampling settings of the checkpoint itself.
    """

    eos: frozenset[int]
    defaults: Mapping[str, Any]

    async def steps(self, prompt: Sequence[int], generated: Sequence[int]) -> list[NextToken]:
        """Return the model's own distribution at each generated token.

        Raises:
            NotComparable: there is none.
        """

    async def prompt_ids(self, chat: Mapping[str, Any]) -> list[int]:
        """Return the ids of the prompt for a chat with messages and tools.

        Raises:
            NotComparable: they cannot be computed.
        """


class Unknown:
    """Compares nothing, and says what could."""

    eos: frozenset[int] = frozenset()
    defaults: Mapping[str, Any] = {}

    async def steps(self, prompt: Sequence[int], generated: Sequence[int]) -> list[NextToken]:
        raise NotComparable("give --reference CHECKPOINT")

    async def prompt_ids(self, chat: Mapping[str, Any]) -> list[int]:
        raise NotComparable("give --reference CHECKPOINT")
