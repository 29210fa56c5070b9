"""Reading the verdict in a judge's reply, although the text under test may contain labels too."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gymq import responses
from gymq.judge.prompts import PromptTemplate
from gymq.responses import conclusion


def last_text(response: Mapping[str, Any]) -> str:
    """Return the text of the last content part of the last item; empty if it is not a message or not a text."""
    if not response["output"] or not responses.is_message(response["output"][-1]):
        return ""
    content = response["output"][-1]["content"]
    if isinstance(content, str):
        return content
    return (content[-1].get("text") or "") if content else ""


def last_label(text: str, *labels: str) -> str | None:
    """Return the label that ends last in a text, the longer of two at the same place; None if there is none."""
    found = [(text.rindex(label) + len(label), len(label), label) for label in labels if label in text]
    return max(found)[2] if found else None


class Labels:
    """The verdicts that a judge can give, and how one is read although the text under test may hold them all.

    The last label counts that stands neither in thoughts nor in a quotation, and that is neither denied nor asked for,
    since a judge reasons first and decides last. The text under test is shown to the judge with each label in it broken
    up, so that a judge who repeats it gives no verdict.
    """

    def __init__(self, forms: Mapping[str, str], *, ignore_case: bool = False) -> None:
        """Compile the patterns of the labels.

        Args:
            forms: for each verdict the pattern of the label that gives it.
        """
        self._verdicts = sorted(forms, key=lambda verdict: -len(forms[verdict]))
        pattern = "|".join(f"({forms[verdict]})" for verdict in self._verdicts)
        self._pattern = re.compile(pattern, re.IGNORECASE if ignore_case else 0)

    @classmethod
    def exactly(cls, *labels: str) -> Labels:
        """Return the labels that stand for themselves, in this case."""
        return cls({label: re.escape(label) for label in labels})

    def first(self, text: str) -> str | None:
        """Return the verdict that begins first in a text, quoted or not, as NeMo Gym reads it."""
        found = self._pattern.search(text)
        return None if found is None else self._verdict(found)

    def read(self, text: str) -> str | None:
        """Return the last verdict that a judge gives, outside of thoughts, or the one that is the whole last line."""
        text = conclusion(text)
        quoted = _quoted(text)
        verdict = None
        labels = list(self._pattern.finditer(text))
        compared = {end for one in itertools.pairwise(labels) if self._are_compared(*one) for end in one}
        for found in labels:
            around = text[max(found.start() - 1, 0) : found.start()] + text[found.end() : found.end() + 1]
            is_other = quoted[found.start()] or around == "''" or found in compared
            if not is_other and not is_denied(text, found.start(), found.end()):
                verdict = self._verdict(found)
        return verdict if verdict is not None else self._alone(text)

    def _are_compared(self, one: re.Match[str], other: re.Match[str]) -> bool:
        """Return whether two verdicts are named side by side, as in `A or B`."""
        return self._verdict(one) != self._verdict(other) and bool(
            _BESIDE.fullmatch(one.string, one.end(), other.start())
        )

    def material(self, text: str) -> str:
        """Return a text under test for its place in a template: none of its labels is whole.

        Labels that are plain words, such as `yes`, stay as they are.
        """
        return self._pattern.sub(lambda found: found[0] if found[0].isalnum() else _broken(found[0]), text)

    def _alone(self, text: str) -> str | None:
        lines = [line.strip(_DECORATION) for line in text.splitlines()]
        found = self._pattern.fullmatch(next((line for line in reversed(lines) if line), ""))
        return None if found is None else self._verdict(found)

    def _verdict(self, found: re.Match[str]) -> str:
        assert found.lastindex is not None  # each alternative is a group
        return self._verdicts[found.lastindex - 1]


@dataclass(frozen=True)
class Question:
    """A question to a judge about a text: how the text is shown, and how the verdict is read.

    Attributes:
        hardened: shown and read as `Labels` describes; otherwise the text is shown as it is, and the label counts that
            the judge writes first.
    """

    template: PromptTemplate
    labels: Labels
    hardened: bool

    def material(self, text: str) -> str:
        """Return the text under test for its place in the template."""
        return self.labels.material(text) if self.hardened else text

    def label_in(self, text: str) -> str | None:
        """Return the verdict in a judge's text; None if there is none."""
        return self.labels.read(text) if self.hardened else self.labels.first(text)

    def read(self, response: dict[str, Any]) -> str | None:
        """Return the verdict in the last text of a judge's response; None if there is none."""
        return self.label_in(last_text(response))


# What denies the label right behind it, or says that somebody else says it; what denies a word at the end of the same
# clause; and what denies the label right before it.
_DENIES_NEXT = re.compile(
    r"(?:\b(?:not|never|nor|neither|hardly|unlike|over|(?<!other )than|instead of|as opposed to"
    r"|reject(?:s|ed)?|rul(?:es?|ed) out|exclude[sd]?|tempted by|(?:wrong|mistake) to \w+"
    r"|claim(?:s|ed)?|contain(?:s|ed)?|quote[sd]|repeat(?:s|ed)|ask(?:s|ed) for|wr(?:ites|ote)|end(?:s|ed) with"
    r"|inject(?:s|ed)?|would have \w+|if [^.!?;\n]{1,40} would \w+"
    r"|(?:not|never|cannot) (?:be|say|give|write|choose|deserve|call it|grade it)|by no means|far from|anything but"
    r"|refused? to \w+|pretends?|insist(?:s|ed|ing)? on|demand(?:s|ed|ing)?(?: for)?"
    r"|(?:tell|told|ask|instruct|order|urge)(?:s|ed|ing)? (?:me |us |you |the judge )?to \w+"
    r"|(?:answer|reply|response|submission|candidate|text) (?:says|said|states|wants))|n['\u2019]t(?: say| be| give)?"
    r"|\b(?:answer|reply|response|submission)['\u2019]s)"
    r" (?:an? |the )?(?:label |verdict )?[*_(]*\Z",
    re.IGNORECASE,
)
_DENIES_CLAUSE = re.compile(r"\b(?:not|never|nor|neither|cannot)\b|n['\u2019]t\b", re.IGNORECASE)
_DENIES_BEFORE = re.compile(
    r"[*_)]* (?:(?:is|was|does|did|can|could|should|would)(?: not\b|n['\u2019]t\b)|cannot\b"
    r"|(?:is|was|would be) (?:clearly |plainly )?(?:wrong|incorrect|false|excluded|ruled out|out|a mistake)\b"
    r"|would (?:need|require|mean|only)\b)",
    re.IGNORECASE,
)
_BESIDE = re.compile(r"[*_`]*(?: (?:or|and|vs\.?|versus) |/)[*_`]*")
_CLAUSE_BEGINS = re.compile(r"[.,;:!?\n]|\b(?:and|but|so|or|hence|thus|therefore|because|which)\b", re.IGNORECASE)
_ASKED = re.compile(r"[^.,!?\n]{0,20}\?")


def is_denied(text: str, start: int, end: int) -> bool:
    """Return whether a judge denies the label at a place (`not A`, `B rather than A`), or only asks for it."""
    before = text[max(start - 60, 0) : start]
    if _DENIES_NEXT.search(before) or _DENIES_BEFORE.match(text, end) or _ASKED.match(text, end):
        return True
    if not text[start:end].replace("_", "").isalnum():
        return False
    begins = [found.end() for found in _CLAUSE_BEGINS.finditer(before)]
    return _DENIES_CLAUSE.search(before, begins[-1] if begins else 0) is not None


_QUOTES = {'"': '"', "`": "`", "\u201c": "\u201d", "\u00ab": "\u00bb"}
_DECORATION = " \t*_`'\".\u201c\u201d\u00ab\u00bb"


def _broken(text: str) -> str:
    return f"{text[0]} {text[1:]}"


def _quoted(text: str) -> bytearray:
    """Return for each character whether it stands in a fenced block, a quoted line, or quotation marks on one line.

    A fence that nothing closes begins no block: a reply that is quoted in part may have brought it.
    """
    marks = bytearray(len(text))
    lines = text.splitlines(keepends=True)
    fences = [number for number, line in enumerate(lines) if _is_fence(line)]
    fences = fences[: len(fences) - len(fences) % 2]
    blocks = zip(fences[::2], fences[1::2], strict=True)
    fenced = {number for begin, end in blocks for number in range(begin, end + 1)}
    start = 0
    for number, line in enumerate(lines):
        if number in fenced or line.lstrip().startswith(">"):
            marks[start : start + len(line)] = b"\1" * len(line)
        else:
            for begin, end in _quotations(line):
                marks[start + begin : start + end] = b"\1" * (end - begin)
        start += len(line)
    return marks


def _is_fence(line: str) -> bool:
    """Return whether a line begins or ends a fenced block. One with further backticks is code within its line."""
    beginning = line.lstrip()
    return beginning.startswith("```") and "`" not in beginning.lstrip("`")


def _quotations(line: str) -> Iterable[tuple[int, int]]:
    closing, begin = None, 0
    for position, character in enumerate(line):
        if closing is None and character in _QUOTES:
            closing, begin = _QUOTES[character], position
        elif character == closing:
            yield begin, position
            closing = None
