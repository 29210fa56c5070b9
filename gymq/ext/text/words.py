"""Words, names and numbers that a text holds by themselves, not within longer ones.

| text | holds | does not hold |
| --- | --- | --- |
| `Indiana, Jean-Paul, New\u00a0York` | `indiana`, `Jean-Paul`, `new york` | `India`, `Jean`, `York City` |
| `**_QWERT_**, snake_case, Geneva's` | `QWERT`, `Geneva` | `snake` |
| `3.5, -7, 1,234,567, 11112,22223` | `3.5`, `1234567`, `11112`, `22223` | `3`, `5`, `7`, `234`, `567`, `1111` |
"""

from __future__ import annotations

import re

SEPARATING_DIGITS = 4  # a comma beside so many digits divides a list; beside fewer it may belong to the number

_PLAIN = str.maketrans(
    {
        **dict.fromkeys("\u202f\u00a0\u2009\u200a\u2002\u2003", " "),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015", "-"),
        **dict.fromkeys("\u2018\u2019", "'"),
        **dict.fromkeys("\u201c\u201d", '"'),
    }
)
_BLANKS = re.compile(" +")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})++(?!\d|,\d)")

_NOT_IN_A_WORD_BEFORE = r"(?<![^\W_])(?<![^\W_]_)"
_NOT_IN_A_WORD_BEHIND = r"(?![^\W_]|_[^\W_])"
_NO_SIGN_BEFORE = r"(?<!\d\.)(?<![^\w][-+])(?<!^[-+])"


def plain(text: str) -> str:
    """Return the text in lower case with plain blanks, hyphens and quotes. Line ends stay."""
    return _BLANKS.sub(" ", text.lower().translate(_PLAIN)).strip()


class Words:
    """The words, names and numbers of a text.

    They are compared as `plain` has them, without commas between thousands; blanks and line ends are the same.
    """

    def __init__(self, text: str) -> None:
        self._text = _comparable(text)

    def __contains__(self, spelling: str) -> bool:
        return self.place_of(spelling) is not None

    def place_of(self, spelling: str) -> int | None:
        """Return where a spelling begins first by itself; None if nowhere, or if it is blank."""
        words = _comparable(spelling).split()
        if not words:
            return None
        pattern = _before(words[0]) + r"\s+".join(map(re.escape, words)) + _behind(words[-1])
        found = re.search(pattern, self._text)
        return None if found is None else found.start()


def _comparable(text: str) -> str:
    return _THOUSANDS.sub(lambda number: number[0].replace(",", ""), plain(text))


def _before(word: str) -> str:
    """Return what may not stand before a word."""
    if not word[0].isalnum():
        return ""
    if not word[0].isdigit():
        return _NOT_IN_A_WORD_BEFORE + r"(?<![^\W\d]-)"
    comma = "" if word[:SEPARATING_DIGITS].isdigit() and len(word) >= SEPARATING_DIGITS else r"(?<!\d,)"
    return _NOT_IN_A_WORD_BEFORE + _NO_SIGN_BEFORE + comma


def _behind(word: str) -> str:
    """Return what may not stand behind a word."""
    if not word[-1].isalnum():
        return ""
    if not word[-1].isdigit():
        return _NOT_IN_A_WORD_BEHIND + r"(?!-[^\W\d])"
    comma = "" if word[-SEPARATING_DIGITS:].isdigit() and len(word) >= SEPARATING_DIGITS else r"(?!,\d)"
    return _NOT_IN_A_WORD_BEHIND + r"(?!\.\d)" + comma
