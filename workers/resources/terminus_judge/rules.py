"""The two ways to judge a batch: as it is meant, and as NeMo Gym does."""

from __future__ import annotations

import json
from typing import Any

from gymq.judge import Question, last_label

END = 200  # characters at the end of the judge's reply, in which the last label counts as published


class AsMeant:
    """Shows what was parsed: the text may hold a field twice, or a label in escapes."""

    def fits(self, is_complete: bool, expected: bool) -> bool:
        return is_complete == expected

    def shown(self, text: str, parsed: dict[str, Any] | None) -> str:
        return json.dumps(parsed, ensure_ascii=False)

    def label(self, question: Question, text: str, labels: tuple[str, str]) -> str | None:
        return question.label_in(text)


class Published:
    """Shows the text, admits what is complete in any case, and prefers the last label near the end."""

    def fits(self, is_complete: bool, expected: bool) -> bool:
        return is_complete or not expected

    def shown(self, text: str, parsed: dict[str, Any] | None) -> str:
        return text

    def label(self, question: Question, text: str, labels: tuple[str, str]) -> str | None:
        return last_label(text[-END:], *labels) or question.label_in(text)


BatchRule = AsMeant | Published
