"""swerl_llm_judge: the policy is the judge. It sees an issue and candidate patches, and names the best one.

The answer is a letter in a `<solution>` tag, compared with the letter, or the letters, of the patches that are right.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from gymq.workers.resources.swerl_llm_judge.choice import READERS

import gymq
from gymq.responses import assistant_text


class PatchesRow(gymq.Row):
    options: list[dict[str, str]] | None = None
    expected_answer: str | list[str] | None = None
    grading_mode: Literal["lenient", "strict"] = "lenient"

    @property
    def letters(self) -> list[str]:
        """The letters that can be chosen."""
        names = (next(iter(option), "") for option in self.options or ())
        return [name.upper() for name in names if len(name) == 1 and name.isalpha()]

    @property
    def right_letters(self) -> list[str]:
        """The expected letters, each once."""
        given = self.expected_answer or []
        letters = (text.strip().upper() for text in ([given] if isinstance(given, str) else given))
        possible = self.letters
        return list(
            dict.fromkeys(
                letter
                for letter in letters
                if len(letter) == 1 and letter.isalpha() and (not possible or letter in possible)
            )
        )


class PatchChoice(gymq.Resources[PatchesRow]):
    """Reward 1 if the reply chooses a right patch."""

    class Options(gymq.WorkerOptions):
        without_meaning: ClassVar = gymq.WorkerOptions.without_meaning | {"dataset_name"}

    reward_range = (0.0, 1.0)

    async def verify(self, request: gymq.VerifyRequest[PatchesRow]) -> gymq.Verdict:
        row = request.row
        chosen = READERS[row.grading_mode](assistant_text(request.response), set(row.letters))
        right = row.right_letters
        return gymq.Verdict(
            float(chosen in right),
            expected_answer=right[0] if len(right) == 1 else right,
            extracted_answer=chosen,
        )
