"""ruler2: the twelve tasks of RULER's second edition. The reply is compared with texts, or read for a letter."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pydantic
from gymq.workers.resources.gpqa_diamond.rules import answer_line_letter
from gymq.workers.resources.mcqa.published import BOX, last_box
from gymq.workers.resources.mcqa.rules import the_last
from gymq.workers.resources.ruler2.texts import MATCH_TYPES, text_score

import gymq
from gymq.authoring import check_installed
from gymq.ext.text import Choices, Words, answer_lines, boxes, in_order
from gymq.ext.text.choices import FOREIGN_LETTERS
from gymq.responses import conclusion

_OPENING = re.compile(r"\banswer(?: is\b[*_:]*+|[*_`]{0,3}\s*+[:\uff1a][*_`]{0,3})\s*+", re.IGNORECASE)
_BLANK_LINE = re.compile(r"\n[ \t]++(?=\n)")
_ANY_LETTER = Choices({})
_FINAL = re.compile(r"The final answer is (.+)$", re.MULTILINE)
_CAPITAL = re.compile(r"\b[A-Z]\b")

log = logging.getLogger(__name__)

LETTERS = "multichoice"
TEXTS = "ruler2"

_CONTROL = re.compile(r"[\x00-\x1f]")


class Ruler2Row(gymq.Row):
    expected_answer: Any  # references, or a letter
    eval_type: str = TEXTS
    match_type: str = "all"
    task: str | None = None
    length: int | None = None

    @pydantic.model_validator(mode="after")
    def _check_match_type(self) -> Ruler2Row:
        if self.eval_type != LETTERS and self.match_type not in MATCH_TYPES:
            raise ValueError(f"match_type must be {', '.join(MATCH_TYPES[:-1])} or {MATCH_TYPES[-1]}")
        return self


class Ruler2(gymq.Resources[Ruler2Row]):
    """Reward is how well the reply fits the expected texts, word by word, or 1 for the expected letter."""

    reward_range = (0.0, 1.0)
    row_kinds = ("mk_niah_basic", "mv_niah_basic")  # the other tasks need MMLU and HotpotQA

    class Options(gymq.WorkerOptions):
        hardened: bool = True  # false: references inside of words count, and letters where the peer reads them

    @classmethod
    def make_rows(cls, wanted: gymq.RowsWanted) -> Iterator[dict[str, Any]]:
        """Make rows of the tasks that need no data of others."""
        from gymq.workers.resources.ruler2.generate import make_rows

        return make_rows(wanted)

    async def start(self) -> None:
        check_installed("resources", "rapidfuzz")
        self._rule = AsAsked() if self.options.hardened else Published()
        self._warned_of: set[str] = set()

    async def verify(self, request: gymq.VerifyRequest[Ruler2Row]) -> gymq.Verdict:
        row = request.row
        reply = request.reply_text
        letter = None
        if row.eval_type == LETTERS:
            letter = self._rule.letter(reply)
            reward = float(letter == str(row.expected_answer).strip().upper())
        else:
            self._warn_if_unknown(row.eval_type)
            given = row.expected_answer
            references = [str(reference) for reference in (given if isinstance(given, list) else [given])]
            match_type = next(one for one in MATCH_TYPES if one == row.match_type)
            reward = text_score(self._rule.text(reply), references, match_type, self._rule.contains)
        shown = _CONTROL.sub("\n", reply.strip()).strip()
        return gymq.Verdict(reward, predicted_answer=shown, extracted_answer=letter)

    def _warn_if_unknown(self, eval_type: str) -> None:
        if eval_type != TEXTS and eval_type not in self._warned_of:
            self._warned_of.add(eval_type)
            log.warning("%s: unknown eval_type %r, compared as texts", self.name, eval_type[:80])


class AsAsked:
    """Reads behind the thoughts the last place that chooses a letter, and references that stand by themselves."""

    def letter(self, reply: str) -> str | None:
        reply = conclusion(reply)
        return the_last(_ANY_LETTER, in_order(boxes(reply), answer_lines(reply, _OPENING)))

    def text(self, reply: str) -> str:
        return _BLANK_LINE.sub("\n", conclusion(reply)).strip()

    def contains(self, text: str, reference: str) -> bool:
        return reference in Words(text)


class Published:
    """Reads the letter in one place after the other, and references also inside words."""

    def letter(self, reply: str) -> str | None:
        return published_letter(reply)

    def text(self, reply: str) -> str:
        return reply

    def contains(self, text: str, reference: str) -> bool:
        return reference.lower() in text.lower()


def published_letter(reply: str) -> str | None:
    """Return the letter of the last sentence that gives the final answer or, without one, of the last box.

    If there is neither, or no letter in it, the last answer line counts.
    """
    sentences = _FINAL.findall(reply)
    candidate = sentences[-1] if sentences else _content_of_last_box(reply)
    return _letter_in(candidate or "") or answer_line_letter(reply)


def _content_of_last_box(reply: str) -> str | None:
    """Return what the last box holds; nothing if the command is not followed by a brace, or the brace not closed."""
    if reply.rfind(BOX.removesuffix("{")) != reply.rfind(BOX):
        return None
    return last_box(reply)


def _letter_in(candidate: str) -> str | None:
    """Return a character that stands by itself, whatever it is, or the last capital that stands alone."""
    text = candidate.translate(FOREIGN_LETTERS).strip()
    if len(text) == 1:
        return text.upper()
    capitals = _CAPITAL.findall(text)
    return capitals[-1] if capitals else None
