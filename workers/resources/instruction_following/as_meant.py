"""Instructions that are checked by what they say where the published checks read something else."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from gymq.workers.resources.instruction_following import formats, keywords, lengths
from gymq.workers.resources.instruction_following.arguments import Check, given, not_below
from gymq.workers.resources.instruction_following.formats import POSTSCRIPTS, without_fence
from gymq.workers.resources.instruction_following.texts import paragraphs

_BULLET = re.compile(r"[ \t]*+[*+-][ \t]+\S")
_DRESS = str.maketrans("", "", "*\u201c\u201d")
_GIVEN = frozenset({"keyword", "keyword1", "keyword2", "keywords", "section_spliter"})
_EMPTY_BRACKETS = re.compile(r"\[[ \t]*+\]")
_RULE = re.compile(r"[ \t]*+(?:\*[ \t]*+){3,}|[ \t]*+(?:-[ \t]*+){3,}")


def none_occurs(text: str, *, forbidden_words: list[str]) -> bool:
    """No forbidden word occurs as a word of its own, in any case."""
    return bool(forbidden_words) and not any(word_pattern(word).search(text) for word in forbidden_words)


def postscript(text: str, *, postscript_marker: str) -> bool:
    """The marker of a postscript occurs, in any case; the two usual ones in any spelling."""
    marker = postscript_marker.strip()
    return re.search(POSTSCRIPTS.get(marker, re.escape(marker.lower())), text.lower()) is not None


def bullets(text: str, *, num_bullets: int) -> bool:
    """As many bullets of Markdown as wanted: a sign, a blank and a text; a rule of signs is none."""
    found = sum(bool(_BULLET.match(line)) and not _RULE.fullmatch(line) for line in text.split("\n"))
    return found == not_below(0, num_bullets)


def is_json(text: str) -> bool:
    """The whole text is JSON, which has no NaN and no infinity; a code fence around it does not count."""
    try:
        json.loads(without_fence(text), parse_constant=_refuse)
    except ValueError:
        return False
    return True


def placeholders(text: str, *, num_placeholders: int) -> bool:
    """There are enough placeholders in square brackets, each on one line; empty brackets are none."""
    return formats.placeholders(_EMPTY_BRACKETS.sub("", text), num_placeholders=num_placeholders)


def first_word_of_paragraph(text: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """As many paragraphs as wanted, and one of them begins with a word, in whatever dress. Blank ones are none."""
    filled = "\n\n".join(part.translate(_DRESS) for part in paragraphs(text) if part.strip())
    return lengths.first_word_of_paragraph(
        filled, num_paragraphs=num_paragraphs, nth_paragraph=nth_paragraph, first_word=first_word
    )


def word_pattern(word: str) -> re.Pattern[str]:
    """Return what finds a word that is no part of a longer one, in any case."""
    word = given(word)
    before = r"(?<!\w)" if word[0].isalnum() else ""
    behind = r"(?!\w)" if word[-1].isalnum() else ""
    return re.compile(before + re.escape(word) + behind, re.IGNORECASE)


def _literally(check: Check) -> Check:
    """Return a check that takes given words as they are; as published they are patterns."""

    def holds(text: str, **arguments: Any) -> bool:
        return check(text, **{name: _escaped(value) if name in _GIVEN else value for name, value in arguments.items()})

    return holds


def _escaped(words: str | list[str]) -> str | list[str]:
    return [re.escape(given(word)) for word in words] if isinstance(words, list) else re.escape(given(words))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_PATTERNS = (
    *("count:count_increment_word", "keywords:existence", "keywords:frequency"),
    *("keywords:word_count_different_numbers", "keywords:word_once"),
)

AS_MEANT: dict[str, Check] = {
    "detectable_content:number_placeholders": placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:json_format": is_json,
    "detectable_format:multiple_sections": _literally(formats.sections),
    "detectable_format:number_bullet_lists": bullets,
    "keywords:forbidden_words": none_occurs,
    "length_constraints:nth_paragraph_first_word": first_word_of_paragraph,
    **{name: _literally(keywords.CHECKS[name]) for name in _PATTERNS},
}
