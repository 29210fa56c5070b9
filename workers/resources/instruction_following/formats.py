"""Instructions about the form of a text. All take time in proportion to its length, but for patterns of the row."""

from __future__ import annotations

import json
import re

from gymq.workers.resources.instruction_following.arguments import not_below
from gymq.workers.resources.instruction_following.texts import sentences

POSTSCRIPTS = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}
ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def no_comma(text: str) -> bool:
    return "," not in text


def no_dot(text: str) -> bool:
    return "." not in text


def no_exclamation_mark(text: str) -> bool:
    return "!" not in text


def in_quotation_marks(text: str) -> bool:
    """The whole text is in double quotation marks."""
    text = text.strip()
    return len(text) > 1 and text.startswith('"') and text.endswith('"')


def ends_with(text: str, *, end_phrase: str) -> bool:
    """The text ends with the phrase, in any case; quotation marks around the text do not count."""
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def constrained_response(text: str) -> bool:
    """One of the three answers occurs."""
    return any(answer in text for answer in ANSWERS)


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


def title(text: str) -> bool:
    """Some line has a title in double angular brackets."""
    return any(_has_title(line) for line in text.split("\n"))


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


def words_in_brackets(text: str) -> bool:
    """Every word is in square brackets."""
    return all(word.startswith("[") and word.endswith("]") for word in text.split())


def wrapped_pairs(text: str) -> bool:
    """Every two words are in double angular brackets; a last odd word need not be."""
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=False)
    return all(first.startswith("<<") and second.endswith(">>") for first, second in pairs)


def sentences_joined_by_hyphens(text: str) -> bool:
    """What stands between hyphens are the sentences, without blanks around them."""
    return all(
        part == sentence for part, sentence in zip(text.split("-"), sentences(text.replace("-", " ")), strict=False)
    )


def _has_title(line: str) -> bool:
    start, end = line.find("<<"), line.rfind(">>")
    return 0 <= start < end - 2 and bool(line[start : end + 2].lstrip("<").rstrip(">").strip())
