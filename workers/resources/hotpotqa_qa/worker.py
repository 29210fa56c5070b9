"""hotpotqa_qa: questions with a short answer, which the reply gives as JSON. It has to contain the expected one."""

from __future__ import annotations

from gymq.workers.resources.hotpotqa_qa.extraction import find_answer
from gymq.workers.resources.hotpotqa_qa.scores import (
    contains,
    contains_strictly,
    exact_match,
    spellings_of,
    token_f1,
    unreliable,
)

import gymq


class AnswerRow(gymq.Row):
    expected_answer: str


class HotpotQa(gymq.Resources[AnswerRow]):
    """Reward 1 if the reply's answer contains the expected one in a known spelling, early if it is long."""

    reward_range = (0.0, 1.0)

    class Options(gymq.WorkerOptions):
        report_filtered_metrics: bool = True  # the peer's statistics have it; here without effect

    async def verify(self, request: gymq.VerifyRequest[AnswerRow]) -> gymq.Verdict:
        expected = request.row.expected_answer
        answer = find_answer(request.reply_text.strip())
        spellings = spellings_of(expected)
        correct = float(contains_strictly(answer, spellings))
        reason = unreliable(expected)
        return gymq.Verdict(
            correct,
            expected_answer=expected,
            extracted_answer=answer or None,
            answer_em=exact_match(answer, expected),
            answer_f1=token_f1(answer, expected),
            is_correct=float(contains(answer, spellings)),
            is_correct_strict=correct,
            gt_should_remove=bool(reason),
            gt_remove_reason=reason,
        )
