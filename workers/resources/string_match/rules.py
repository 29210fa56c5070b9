"""The two ways to find and compare a short answer: as the question means it, and as NeMo Gym does."""

from __future__ import annotations

from gymq.workers.resources.string_match import comparison, extraction, published
from gymq.workers.resources.string_match.extraction import Mode

from gymq.ext.text import answer_lines, boxes, undressed
from gymq.responses import conclusion


class AsMeant:
    """Takes the answer that stands last, in whatever dress; a whole number and a unit have to be the expected ones."""

    def answer(self, reply: str, mode: Mode) -> str | None:
        reply = conclusion(reply).strip()
        if not reply:
            return None
        if mode == "full_response":
            return reply
        if mode == "last_line":
            return _bare(extraction.last_line(reply))
        found = answer_lines(reply) if mode == "final_answer" else []
        found = found or boxes(reply)
        return _bare(found[-1].text) if found else None

    def score(self, answer: str, expected: str, case_sensitive: bool) -> float:
        return comparison.score(answer, expected, case_sensitive=case_sensitive)


class Published:
    """Compares numbers within 1 % and without their units, as NeMo Gym does."""

    def answer(self, reply: str, mode: Mode) -> str | None:
        return extraction.find_answer(reply, mode)

    def score(self, answer: str, expected: str, case_sensitive: bool) -> float:
        return published.score(answer, expected, case_sensitive=case_sensitive)


def _bare(text: str) -> str:
    return undressed(undressed(text).strip("*` ").rstrip("."))
