"""Instructions about the form of a text. All take time in proportion to its length, but for patterns of the row."""

from __future__ import annotations

import json
import re

from gymq.workers.resources.instruction_following.arguments import Check, not_below
from gymq.workers.resources.instruction_following.texts import sentences

POSTSCRIPTS = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}
ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def in_quotation_marks(text: str) -> bool:
    """The whole text is in double quotation marks."""
    text = text.strip()
    return len(text) > 1 and text.startswith('"') and text.endswith('"')


def postscript(text: str, *, postscript_marker: str) -> bool:
    """The marker of a postscript occurs, in any case. Other markers than the two usual ones are patterns."""
    marker = postscript_marker.strip()
    return re.search(POSTSCRIPTS.get(marker, marker.lower()), text.lower(), re.MULTILINE) is not None


def is_json(text: str) -> bool:
    """The whole text is JSON; a code fence around it does not count."""
    try:
        json.loads(without_fence(text))
    except ValueError:
        return False
    return True


def without_fence(text: str) -> str:
    """Return a text without the code fence around it."""
    return re.sub(r"\A```(?:json|Json|JSON)?", "", text.strip()).removesuffix("```").strip()


def placeholders(text: str, *, num_placeholders: int) -> bool:
    """There are enough placeholders in square brackets, each on one line."""
    found, opened = 0, False
    for mark in re.findall(r"[\[\]\n]", text):
        found += opened and mark == "]"
        opened = mark == "["
    return found >= not_below(0, num_placeholders)


def bullets(text: str, *, num_bullets: int) -> bool:
    """As many bullets as wanted: lines that begin with one star, or with a dash."""
    lines = [line.lstrip() for line in text.split("\n")]
    found = sum(line.startswith("-") or (line.startswith("*") and not line.startswith("**")) for line in lines)
    return found == not_below(0, num_bullets)


def highlights(text: str, *, num_highlights: int) -> bool:
    """There are enough stretches between stars, one or two on each side, on one line and not blank."""
    single = re.findall(r"\*[^\n*]*\*", text)
    double = re.findall(r"\*\*[^\n*]*\*\*", text)
    found = sum(bool(stretch.strip("*").strip()) for stretch in single + double)
    return found >= not_below(0, num_highlights)


def sections(text: str, *, section_spliter: str, num_sections: int) -> bool:
    """There are enough headings: the given word, a pattern, and a number."""
    headings = re.finditer(rf"\s?{section_spliter.strip()}\s?\d+\s?", text)
    return sum(1 for _ in headings) >= not_below(0, num_sections)


def wrapped_pairs(text: str) -> bool:
    """Every two words are in double angular brackets; a last odd word need not be."""
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=False)
    return all(first.startswith("<<") and second.endswith(">>") for first, second in pairs)


def sentences_joined_by_hyphens(text: str) -> bool:
    """What stands between hyphens are the sentences, without blanks around them."""
    parts = zip(text.split("-"), sentences(text.replace("-", " ")), strict=False)
    return all(part == sentence for part, sentence in parts)


def _has_title(line: str) -> bool:
    """Return whether a line has a title in double angular brackets."""
    start, end = line.find("<<"), line.rfind(">>")
    return 0 <= start < end - 2 and bool(line[start : end + 2].lstrip("<").rstrip(">").strip())


CHECKS: dict[str, Check] = {
    "detectable_content:number_placeholders": placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:bigram_wrapping": wrapped_pairs,
    "detectable_format:constrained_response": lambda text: any(answer in text for answer in ANSWERS),
    "detectable_format:json_format": is_json,
    "detectable_format:multiple_sections": sections,
    "detectable_format:number_bullet_lists": bullets,
    "detectable_format:number_highlighted_sections": highlights,
    "detectable_format:sentence_hyphens": sentences_joined_by_hyphens,
    "detectable_format:square_brackets": lambda text: all(
        word.startswith("[") and word.endswith("]") for word in text.split()
    ),
    "detectable_format:title": lambda text: any(map(_has_title, text.split("\n"))),
    "punctuation:no_comma": lambda text: "," not in text,
    "punctuation:punctuation_dot": lambda text: "." not in text,
    "punctuation:punctuation_exclamation": lambda text: "!" not in text,
    # Quotation marks around the text do not count.
    "startend:end_checker": lambda text, end_phrase: (
        text.strip().strip('"').lower().endswith(end_phrase.strip().lower())
    ),
    "startend:quotation": in_quotation_marks,
}
