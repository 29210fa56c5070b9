"""Instructions that are checked by what they say where the published checks read something else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NoReturn

from gymq.workers.resources.instruction_following import formats, lengths
from gymq.workers.resources.instruction_following.arguments import compare, given, not_below
from gymq.workers.resources.instruction_following.formats import POSTSCRIPTS, without_fence
from gymq.workers.resources.instruction_following.texts import paragraphs

_BULLET = re.compile(r"[ \t]*+[*+-][ \t]+\S")
_DRESS = str.maketrans("", "", "*\u201c\u201d")
_EMPTY_BRACKETS = re.compile(r"\[[ \t]*+\]")
_RULE = re.compile(r"[ \t]*+(?:\*[ \t]*+){3,}|[ \t]*+(?:-[ \t]*+){3,}")


def all_occur(text: str, *, keywords: list[str]) -> bool:
    """Every keyword occurs, in any case, inside words too."""
    return bool(keywords) and all(_count(keyword, text) for keyword in keywords)


def none_occurs(text: str, *, forbidden_words: list[str]) -> bool:
    """No forbidden word occurs as a word of its own, in any case."""
    return bool(forbidden_words) and not any(word_pattern(word).search(text) for word in forbidden_words)


def frequency(text: str, *, keyword: str, frequency: int, relation: str) -> bool:
    """The keyword occurs often, or seldom, enough."""
    return compare(_count(keyword, text), relation, not_below(0, frequency))


def once(text: str, *, keyword: str) -> bool:
    """The keyword occurs exactly once."""
    return _count(keyword, text) == 1


def once_and_twice(text: str, *, keyword1: str, keyword2: str) -> bool:
    """The one keyword occurs exactly once, the other exactly twice."""
    return _count(keyword1, text) == 1 and _count(keyword2, text) == 2


def postscript(text: str, *, postscript_marker: str) -> bool:
    """The marker of a postscript occurs, in any case; the two usual ones in any spelling."""
    marker = postscript_marker.strip()
    return re.search(POSTSCRIPTS.get(marker, re.escape(marker.lower())), text.lower()) is not None


def sections(text: str, *, section_spliter: str, num_sections: int) -> bool:
    """There are enough headings: the given word and a number."""
    headings = re.finditer(rf"{re.escape(section_spliter.strip())}\s?\d+", text)
    return sum(1 for _ in headings) >= not_below(0, num_sections)


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


AS_MEANT: dict[str, Callable[..., bool]] = {
    "count:count_increment_word": once_and_twice,
    "detectable_content:number_placeholders": placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:json_format": is_json,
    "detectable_format:multiple_sections": sections,
    "detectable_format:number_bullet_lists": bullets,
    "keywords:existence": all_occur,
    "keywords:forbidden_words": none_occurs,
    "keywords:frequency": frequency,
    "keywords:word_count_different_numbers": frequency,
    "keywords:word_once": once,
    "length_constraints:nth_paragraph_first_word": first_word_of_paragraph,
}


def word_pattern(word: str) -> re.Pattern[str]:
    """Return what finds a word that is no part of a longer one, in any case."""
    word = given(word)
    before = r"(?<!\w)" if word[0].isalnum() else ""
    behind = r"(?!\w)" if word[-1].isalnum() else ""
    return re.compile(before + re.escape(word) + behind, re.IGNORECASE)


def _count(keyword: str, text: str) -> int:
    return text.lower().count(given(keyword).lower())


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
