"""Words and sentences for long texts that mean nothing in particular."""

from __future__ import annotations

import json
import random
from pathlib import Path

_WORDS = json.loads(Path(__file__).with_name("vocabulary.json").read_text(encoding="utf-8"))
ADJECTIVES, NOUNS, VERBS, PEOPLE, ENDINGS = (
    tuple(_WORDS[name]) for name in ("adjectives", "nouns", "verbs", "people", "endings")
)


def word(rng: random.Random) -> str:
    """Return an adjective and a noun, joined by a hyphen."""
    return f"{rng.choice(ADJECTIVES)}-{rng.choice(NOUNS)}"


def new_words(rng: random.Random, count: int) -> list[str]:
    """Return that many different words."""
    found: dict[str, None] = {}
    while len(found) < count:
        found[word(rng)] = None
    return list(found)


def sentence(rng: random.Random) -> str:
    """Return a sentence of about a dozen words."""
    thing = f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    other = f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    return f"The {rng.choice(PEOPLE)} {rng.choice(VERBS)} the {thing} beside the {other} {rng.choice(ENDINGS)}."


def prose(rng: random.Random, words: int) -> list[str]:
    """Return sentences with at least that many words together."""
    found: list[str] = []
    while words > 0:
        found.append(sentence(rng))
        words -= len(found[-1].split())
    return found
