"""The options of a multiple-choice question, and which of them an answer chooses.

| accepted | refused |
| --- | --- |
| `C`, `c`, `(C)`, `[c]`, `C.`, `**C**`, `$C$`, `\\textbf{C}`, `"C"` | `A or B`, `A/B`, `A, B`, `C) D)`, `(A)(B)` |
| `C: a neutron`, `(C) a neutron`, `C - a neutron`, `a neutron (C)`, `a neutron` | `F = k x`, `\\Delta E` |
| `option C`, `I would choose D`, `C, because B is wrong`, `not A but B` | `a boson`, `I do not know` |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from gymq.ext.text.marks import FONT, SPACE, undressed

# Letters that stand for A to D in other scripts: Arabic, Bengali, full-width Latin.
FOREIGN_LETTERS = {ord(foreign): f" {letter}" for foreign, letter in zip("أبجدঅবডঢＡＢＣＤ", "ABCD" * 3, strict=True)}

_MARKS = re.compile(
    r"\\(?:left|right)(?![A-Za-z])|\\[()\[\]{}]"
    r"|[*`$\"\u201c\u201d\u2018\u2019\u00ab\u00bb{}~]|(?<![A-Za-z0-9])_+|_+(?![A-Za-z0-9])"
)
_FORMULA = re.compile(r"[=^\\+<>\u2248\u226a\u226b\u221d]|\w_\w")
_TOKEN = re.compile(r"[A-Za-z](?:\.[A-Za-z])+\.?|\w+(?:['\u2019-]\w+)*|[^\s\w]")
_OPENING, _CLOSING = "([", ").:]"
_BETWEEN = frozenset({*"()[].:,;/|&-\u2013\u2014", "and", "or", "option", "choice"})
_DENIALS = frozenset({"not", "nor", "neither", "than", "isn't", "instead of", "unlike", "except"}) | {
    f"{one} but" for one in ("all", "any", "anything", "everything")
}
_WRONG = frozenset({"wrong", "incorrect", "false", "not"})
_AFTER_A_NAME = frozenset({"is", "because", "since", "as", "due", "and", "or", "not", "rather"})


@dataclass(frozen=True)
class Choices:
    """The options of a question, in upper-case letters. Without any, each letter from A to Z can be chosen."""

    texts: dict[str, str]

    @classmethod
    def of(cls, options: list[dict[str, str | None]]) -> Choices:
        """Return the options that have a text and one letter as key; others cannot be chosen."""
        return cls(
            {
                key.upper(): text
                for option in options
                for key, text in option.items()
                if len(key) == 1 and key.isalpha() and text is not None
            }
        )

    def letter(self, character: str) -> str | None:
        """Return the letter, if it can be chosen."""
        letter = character.upper()
        return letter if letter in self.texts else None

    def letter_of_text(self, text: str) -> str | None:
        """Return the letter of the option with this text."""
        wanted = normalised(text)
        return next((letter for letter, own in self.texts.items() if wanted and normalised(own) == wanted), None)

    def letters_within(self, *texts: str) -> set[str]:
        """Return the letters of the options whose text is contained in one of `texts`."""
        found = set()
        for letter, own in self.texts.items():
            wanted = normalised(own)
            if wanted and any(wanted in text for text in texts):
                found.add(letter)
        return found

    def chosen_in(self, answer: str) -> set[str]:
        """Return the letters that an answer, such as a box or an answer line, chooses: none, one or several."""
        plain = SPACE.sub(" ", FONT.sub("", answer.translate(FOREIGN_LETTERS)))
        text = _MARKS.sub("", plain).strip(".,;:<> \t\r\n")
        for own in (undressed(answer).rstrip("."), text):
            if letter := self.letter_of_text(own):
                return {letter}
        if text and self.letter_of_text(text[1:].strip(" ).:-")) == text[0].upper():
            return {text[0].upper()}
        tokens = _Tokens(_TOKEN.findall(text))
        leading = [at for at in tokens.leading() if not tokens.is_denied(at)]
        if leading and (tokens.is_labelled(leading[0]) or not _FORMULA.search(text)):
            return self._among(tokens, leading)
        if _FORMULA.search(text):
            return set()
        named = [at for at in tokens.letters if not tokens.is_denied(at)]
        return self._among(tokens, [at for at in named if tokens.is_labelled(at)]) or self._among(
            tokens, [at for at in named if tokens[at].isupper()]
        )

    def _among(self, tokens: Sequence[str], places: Iterable[int]) -> set[str]:
        letters = {tokens[at].upper() for at in places}
        return {letter for letter in letters if letter in self.texts or not self.texts}


class _Tokens(tuple[str, ...]):
    """The words and signs of an answer, and which of them may name an option."""

    @cached_property
    def letters(self) -> list[int]:
        """Where single letters are that are neither the article `a` nor the pronoun `I`."""
        return [at for at, token in enumerate(self) if len(token) == 1 and token.isalpha() and not self._is_word(at)]

    def leading(self) -> list[int]:
        """Return where the letters of the list are that the answer begins with, which may be a single one."""
        letters, found = set(self.letters), []
        for at, token in enumerate(self):
            if at in letters:
                found.append(at)
            elif token.lower() not in _BETWEEN:
                break
        return found

    def is_labelled(self, at: int) -> bool:
        """Return whether a letter stands in brackets or has the mark of a label behind it."""
        return self._after(at) in _CLOSING

    def is_denied(self, at: int) -> bool:
        """Return whether the answer says that it is not this letter, or that this letter is wrong."""
        behind = [token.lower() for token in self[at + 1 : at + 4] if token not in _CLOSING]
        if behind[:1] == ["is"] and not _WRONG.isdisjoint(behind[1:2]):
            return True
        while at > 0 and (self[at - 1] in _OPENING or self[at - 1] in ("option", "choice")):
            at -= 1
        before = [token.lower() for token in self[max(at - 2, 0) : at]]
        return bool(before) and (before[-1] in _DENIALS or " ".join(before) in _DENIALS)

    def _is_word(self, at: int) -> bool:
        if self[at] not in "aAI":
            return False
        following = self._after(at)
        return len(following) > 1 and following.islower() and following not in _AFTER_A_NAME

    def _after(self, at: int) -> str:
        return self[at + 1] if at + 1 < len(self) else " "


def normalised(text: str) -> str:
    """Lower case, white space collapsed."""
    return " ".join(text.lower().split())
