"""mcqa: multiple-choice questions. The chosen letter is read out of the reply and compared with the expected one.

How the letter is found depends on the row's grading mode, see `rules.py`; a pattern of the row's own comes first.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

from gymq.workers.resources.mcqa.rules import Mode, RowMode, letter_as_asked, letter_by_pattern, published_letter

import gymq
from gymq.ext.text import Choices
from gymq.processes import ComputeLimits, CpuTimeUsedUp


class ChoiceRow(gymq.Row):
    options: list[dict[str, str | None]] | None = None
    expected_answer: str | None = None
    grading_mode: RowMode = "strict_single_letter_boxed"
    template_metadata: dict[str, Any] | None = None
    uuid: str | None = None
    metadata: dict[str, Any] | None = None


class MultipleChoice(gymq.Resources[ChoiceRow]):
    """Reward 1 if the reply chooses the expected letter."""

    reward_range = (0.0, 1.0)

    readers: ClassVar = {True: letter_as_asked, False: published_letter}  # by `hardened`

    class Options(gymq.WorkerOptions):
        grading_mode: Mode | None = None  # instead of the row's own
        hardened: bool = True  # false: the letter that the peer reads

    # For a row's own pattern, which may need exponential time on an unlucky reply; then it finds nothing.
    compute_limits = ComputeLimits(cpu_s=5.0, timeout_s=100.0)

    async def start(self) -> None:
        self._letter = self.readers[self.options.hardened]

    async def verify(self, request: gymq.VerifyRequest[ChoiceRow]) -> gymq.Verdict:
        row = request.row
        gold = (row.expected_answer or "").strip().upper()
        reply = request.reply_text.strip()
        choices = Choices.of(row.options or [])
        letter = await self._letter_by_own_pattern(row, reply, choices)
        if letter is None:
            letter = self._letter(reply, choices, self.options.grading_mode or row.grading_mode)
        reward = float(letter is not None and letter == gold)
        return gymq.Verdict(reward, expected_answer=gold, extracted_answer=letter)

    async def _letter_by_own_pattern(self, row: ChoiceRow, reply: str, choices: Choices) -> str | None:
        for pattern in _patterns(row.template_metadata) if reply else ():
            with suppress(CpuTimeUsedUp):
                letter = await self.compute(letter_by_pattern, pattern, reply, choices)
                if letter is not None:
                    return letter
        return None


def _patterns(template_metadata: dict[str, Any] | None) -> list[str]:
    given = (template_metadata or {}).get("output_regex")
    return [pattern for pattern in (given if isinstance(given, list) else [given]) if isinstance(pattern, str)]
