"""equivalence_rule: the whole reply is compared with an expected text, exactly or by how alike they are."""

from __future__ import annotations

import difflib
from typing import Literal

import gymq
from gymq.processes import ComputeLimits, CpuTimeUsedUp

Rule = Literal["exact", "seq_match", "weighted_seq_match"]

PREFIX_CHARS = 10
PREFIX_WEIGHT = 0.15


class ExpectedRow(gymq.Row):
    expected_answer: str


class EquivalenceRule(gymq.Resources[ExpectedRow]):
    """Reward 1 if the reply is the expected text or, by another rule, the share of characters that match."""

    reward_range = (0.0, 1.0)
    compute_limits = ComputeLimits(cpu_s=30.0, timeout_s=600.0)

    class Options(gymq.WorkerOptions):
        grading_rule: Rule = "exact"

    async def verify(self, request: gymq.VerifyRequest[ExpectedRow]) -> gymq.Verdict:
        reply, expected = normalised(request.reply_text), normalised(request.row.expected_answer)
        if self.options.grading_rule == "exact":
            score = float(reply == expected)
        else:
            measure = ratio if self.options.grading_rule == "seq_match" else weighted_ratio
            try:
                score = await self.compute(measure, reply, expected)
            except CpuTimeUsedUp:
                limit = f"{self.compute_limits.cpu_s:g} s of processor time"
                raise gymq.InvalidTask(
                    f"the reply could not be compared within {limit}; nothing is known of it"
                ) from None
        return gymq.Verdict(score, equivalence_score=score)


def normalised(text: str) -> str:
    """Return the text in lower case with single blanks."""
    return " ".join(text.lower().split())


def ratio(reply: str, expected: str) -> float:
    """Return the share of characters that match, from 0 to 1, as Python's `difflib` finds them.

    The order of the texts matters, and so does what `difflib` does by default: in an expected text of 200 or more
    characters those that are frequent begin no match.
    """
    return difflib.SequenceMatcher(None, reply, expected).ratio()


def weighted_ratio(reply: str, expected: str) -> float:
    """Return the ratio of the texts and that of their beginnings, weighted."""
    prefix = min(PREFIX_CHARS, len(expected))
    score = (1 - PREFIX_WEIGHT) * ratio(reply, expected) + PREFIX_WEIGHT * ratio(reply[:prefix], expected[:prefix])
    return min(1.0, max(0.0, score))
