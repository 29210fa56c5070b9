"""Needles in haystacks: sentences that give a number or a code for a word, hidden in a long text."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from typing import Literal

from gymq.workers.resources.ruler.vocabulary import new_words, prose, word

Haystack = Literal["filler", "prose", "needles"]

FILLER = "The tide is low. The nets are dry. The boats lie on the sand. A gull walks by. It looks for crumbs."
DEPTHS = 40  # evenly spaced places for needles in prose


@dataclass(frozen=True)
class Needles:
    """What is hidden, and in what.

    Attributes:
        keys, values, queried: number of keys, of values of each, and of keys that are asked for.
        codes_as_keys, codes_as_values: version 4 UUIDs instead of words and of numbers.
        digits: of each number.
        values_in_haystack: of each key in a haystack of other needles.
    """

    haystack: Haystack
    keys: int = 1
    values: int = 1
    queried: int = 1
    codes_as_keys: bool = False
    codes_as_values: bool = False
    digits: int = 7
    values_in_haystack: int = 1

    @property
    def what(self) -> str:
        return "code" if self.codes_as_values else "number"

    def make(self, rng: random.Random, size: int) -> tuple[str, list[str]]:
        """Return a prompt and the references: the values of the queried keys.

        Args:
            size: words of prose, sentences of filler, or other needles.
        """
        keys = self._new_keys(rng, self.keys)
        needles = {key: [self._value(rng) for _ in range(self.values)] for key in keys}
        hidden = [self._needle(key, value) for key, values in needles.items() for value in values]
        rng.shuffle(hidden)
        context = self._hide(rng, hidden, size, keys)
        asked = rng.sample(keys, self.queried)
        prompt = (
            f"Some secret {self.what}s are hidden in the text below. Remember them, you will be asked for them.\n\n"
            f"{context}\n\n{self._question(asked)}"
        )
        return prompt, [value for key in asked for value in needles[key]]

    def _hide(self, rng: random.Random, hidden: list[str], size: int, keys: list[str]) -> str:
        if self.haystack == "prose":
            return " ".join(_among(rng, prose(rng, size), hidden))
        if self.haystack == "filler":
            sentences = FILLER.split(". ")
            lines = [sentences[index % len(sentences)].removesuffix(".") + "." for index in range(size)]
        else:
            lines = self._other_needles(rng, size, keys)
        for needle in hidden:
            lines.insert(rng.randint(0, len(lines)), needle)
        return ("\n" if self.haystack == "needles" else " ").join(lines)

    def _other_needles(self, rng: random.Random, size: int, keys: list[str]) -> list[str]:
        lines: list[str] = []
        while len(lines) < size:
            key = str(_uuid(rng)) if self.codes_as_keys else word(rng)
            if key not in keys:
                lines += [self._needle(key, self._value(rng)) for _ in range(self.values_in_haystack)]
        rng.shuffle(lines)
        return lines[:size]

    def _question(self, asked: list[str]) -> str:
        many = len(asked) * self.values > 1
        names = ", ".join(asked[:-1]) + " and " + asked[-1] if len(asked) > 1 else asked[0]
        which = f"What are all the secret {self.what}s" if many else f"What is the secret {self.what}"
        return f"{which} of {names} in the text above? Reply with {'them' if many else 'it'} only."

    def _needle(self, key: str, value: str) -> str:
        return f"A secret {self.what} of {key} is {value}."

    def _new_keys(self, rng: random.Random, count: int) -> list[str]:
        return [str(_uuid(rng)) for _ in range(count)] if self.codes_as_keys else new_words(rng, count)

    def _value(self, rng: random.Random) -> str:
        if self.codes_as_values:
            return str(_uuid(rng))
        return str(rng.randint(10 ** (self.digits - 1), 10**self.digits - 1))


def _among(rng: random.Random, sentences: list[str], hidden: list[str]) -> list[str]:
    """Return sentences with needles between them, at different depths out of 40."""
    depths = sorted(rng.sample(range(DEPTHS), len(hidden)))
    found, position = [], 0
    for depth, needle in zip(depths, hidden, strict=True):
        place = round(len(sentences) * depth / (DEPTHS - 1))
        found += [*sentences[position:place], needle]
        position = place
    return found + sentences[position:]


def _uuid(rng: random.Random) -> uuid.UUID:
    return uuid.UUID(int=rng.getrandbits(128), version=4)
