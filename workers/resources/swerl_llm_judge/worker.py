"""swerl_llm_judge: the policy is the judge. It sees an issue and candidate patches, and names the best one.

The answer is a letter in a `<solution>` tag, compared with the letter, or the letters, of the patches that are right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Set
from typing import ClassVar, Literal

import gymq
from gymq.responses import assistant_text

_STRICT = re.compile(r"<solution>\s*\[?([A-Za-z])\]?\s*</solution>")
_OPENING = re.compile("<solution>", re.IGNORECASE)
_CLOSING = re.compile("</solution>", re.IGNORECASE)


def strict_choice(text: str, allowed: Set[str]) -> str | None:
    """Return the first tag with nothing in it but a letter, alone or in brackets.

    None if that letter is not allowed.
    """
    found = _STRICT.search(text)
    return _if_allowed(found[1], allowed) if found else None


def lenient_choice(text: str, allowed: Set[str]) -> str | None:
    """Return the first letter in the last tag that stands alone; None if it is not allowed."""
    content = ""
    for content in _tags(text):  # noqa: B007 (the last one counts)
        pass
    for position, character in enumerate(content):
        neighbours = content[max(position - 1, 0) : position] + content[position + 1 : position + 2]
        if character.isalpha() and not any(neighbour.isalpha() for neighbour in neighbours):
            return _if_allowed(character, allowed)
    return None


READERS: dict[str, Callable[[str, Set[str]], str | None]] = {"strict": strict_choice, "lenient": lenient_choice}


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


def _tags(text: str) -> Iterator[str]:
    """Return the content of each pair of tags, from left to right."""
    end = 0
    while (opening := _OPENING.search(text, end)) and (closing := _CLOSING.search(text, opening.end())):
        yield text[opening.end() : closing.start()]
        end = closing.end()


def _if_allowed(letter: str, allowed: Set[str]) -> str | None:
    return letter.upper() if letter.upper() in allowed else None
