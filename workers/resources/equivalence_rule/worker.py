"""equivalence_rule: the whole reply is compared with an expected text, exactly or by how alike they are."""

from __future__ import annotations

from gymq.workers.resources.equivalence_rule.similarity import Rule, normalised, ratio, weighted_ratio

import gymq
from gymq.processes import ComputeLimits, CpuTimeUsedUp


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
