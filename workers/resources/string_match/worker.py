"""string_match: short free-text answers, compared with the expected one whatever way they are written."""

from __future__ import annotations

from typing import Any

from gymq.workers.resources.string_match.extraction import Mode
from gymq.workers.resources.string_match.rules import AsMeant, Published

import gymq
from gymq import responses
from gymq.processes import ComputeLimits, CpuTimeUsedUp

SHORT_CHARACTERS = 1_000  # a longer answer is compared in a process, and the event loop is free meanwhile


class TextRow(gymq.Row):
    expected_answer: str
    extraction_mode: Mode = "final_answer"
    case_sensitive: bool = False
    metadata: dict[str, Any] | None = None


class StringMatch(gymq.Resources[TextRow]):
    """Reward 1 if the reply's answer is the expected one in any spelling, 0.98 for a rounded number."""

    reward_range = (0.0, 1.0)

    class Options(gymq.WorkerOptions):
        hardened: bool = True  # false: the peer's answers and tolerance

    # Marks on one letter are sorted in quadratic time; an answer of so many is wrong.
    compute_limits = ComputeLimits(cpu_s=10.0, timeout_s=200.0)

    async def start(self) -> None:
        self._rule = AsMeant() if self.options.hardened else Published()

    async def verify(self, request: gymq.VerifyRequest[TextRow]) -> gymq.Verdict:
        row = request.row
        expected = row.expected_answer
        answer = self._rule.answer(responses.assistant_text(request.response), row.extraction_mode)
        reward = 0.0
        if answer is not None and expected.strip():
            reward = await self._score(answer, expected, row.case_sensitive)
        return gymq.Verdict(reward, expected_answer=expected, extracted_answer=answer)

    async def _score(self, answer: str, expected: str, case_sensitive: bool) -> float:
        if len(answer) <= SHORT_CHARACTERS:
            return self._rule.score(answer, expected, case_sensitive)
        try:
            return await self.compute(self._rule.score, answer, expected, case_sensitive)
        except CpuTimeUsedUp:
            return 0.0
