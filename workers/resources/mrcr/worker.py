"""mrcr: a long conversation with several texts of one kind; the last turn asks for one of them, word for word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymq.workers.resources.equivalence_rule.worker import ratio

import gymq
from gymq.processes import ComputeLimits, CpuTimeUsedUp

# Texts whose lengths have no larger product are compared on the event loop; that takes a few milliseconds.
SMALL = 20_000


class NeedleRow(gymq.Row):
    expected_answer: str
    random_string_to_prepend: str
    n_needles: int
    n_tokens: int


class Mrcr(gymq.Resources[NeedleRow]):
    """Reward is the share of characters that match the expected text, after the random string that must come first."""

    reward_range = (0.0, 1.0)
    row_kinds = ("2", "4", "8")  # needles
    compute_limits = ComputeLimits(cpu_s=60.0, timeout_s=900.0)

    @classmethod
    def make_rows(cls, wanted: gymq.RowsWanted) -> Iterator[dict[str, Any]]:
        """Make conversations of any length."""
        from gymq.workers.resources.mrcr.generate import make_rows

        return make_rows(wanted)

    async def verify(self, request: gymq.VerifyRequest[NeedleRow]) -> gymq.Verdict:
        prefix = request.row.random_string_to_prepend
        answer = request.reply_text.strip()
        matched = answer.startswith(prefix)
        score = 0.0
        if matched:
            score = await self._ratio(answer.removeprefix(prefix), request.row.expected_answer.removeprefix(prefix))
        return gymq.Verdict(score, prefix_matched=matched, seq_match_ratio=score)

    async def _ratio(self, answer: str, expected: str) -> float:
        if len(answer) * len(expected) <= SMALL:
            return ratio(answer, expected)
        try:
            return await self.compute(ratio, answer, expected)
        except CpuTimeUsedUp:
            limit = f"{self.compute_limits.cpu_s:g} s of processor time"
            raise gymq.InvalidTask(f"the reply could not be compared within {limit}; nothing is known of it") from None
