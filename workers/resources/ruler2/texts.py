"""Comparing a reply with texts: what it contains, or how many words are wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal, get_args

MatchType = Literal["all", "part", "2steps"]
MATCH_TYPES: tuple[MatchType, ...] = get_args(MatchType)
Contains = Callable[[str, str], bool]

_DOCUMENT = re.compile(r"Document \d+:")


def text_score(reply: str, references: Sequence[str], match_type: MatchType, contains: Contains) -> float:
    """Return how well a reply fits references, from 0 to 1; 0 without any.

    Args:
        contains: returns whether a text has a reference.
        match_type: `all`: the mean over the references. `part`: the best one, in the reply without the documents that
            it copies. `2steps`: the mean, in the reply's last paragraph.
    """
    used, combined = _WAYS[match_type]
    text = used(reply)
    return combined([soft_match(text, reference, contains) for reference in references]) if references else 0.0


def soft_match(text: str, reference: str, contains: Contains) -> float:
    """Return 1 if the text contains the reference; otherwise 1 minus the word error rate in any case, at least 0.

    The word error rate is the edit distance in words, divided by the number of words of the reference.
    """
    if contains(text, reference):
        return 1.0
    wanted = reference.lower().split()
    if not wanted:
        return 0.0
    from rapidfuzz.distance import Levenshtein

    # A distance above the number of words gives 0, so the search may end there.
    distance = Levenshtein.distance(text.lower().split(), wanted, score_cutoff=len(wanted))
    return max(0.0, 1.0 - distance / len(wanted))


def without_documents(text: str) -> str:
    """Return a text without what stands from each header `Document 7:` to the next blank line."""
    kept, position = [], 0
    while (header := _DOCUMENT.search(text, position)) is not None:
        blank = text.find("\n\n", header.end())
        if blank < 0:
            break
        kept.append(text[position : header.start()])
        position = blank + 2
    return "".join(kept) + text[position:]


def last_paragraph(text: str) -> str:
    """Return what follows the last blank line; the whole text if there is none."""
    return text.rsplit("\n\n", 1)[-1]


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)


_WAYS: dict[MatchType, tuple[Callable[[str], str], Callable[[Sequence[float]], float]]] = {
    "all": (str, _mean),
    "part": (without_documents, max),
    "2steps": (last_paragraph, _mean),
}
