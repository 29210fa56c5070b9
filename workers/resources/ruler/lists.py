"""Variables to trace, and words to count."""

from __future__ import annotations

import random
import string
from itertools import pairwise

from gymq.workers.resources.ruler.vocabulary import new_words

SHORT = 4096  # tokens, below which samples are smaller in other ways too
HOPS = 4
FILLER = "The tide is low. The nets are dry. The boats lie on the sand."

COMMON = 10  # words to find
ZETA_2 = 1.6449340668482264  # sum of 1 / k**2 over all k


def trace(rng: random.Random, size: int, limit: int) -> tuple[str, list[str]]:
    """Return a prompt with a chain of variables among groups of filler sentences, and their names."""
    del limit
    example, example_names = _chain(rng, 5)
    text, names = _chain(rng, size)
    value = _value_of(text)
    question = "Which variables have the value {}, directly or through other variables? Reply with their names only."
    prompt = (
        "Follow how variables are set in a text.\n\n"
        f"{example}\n{question.format(_value_of(example))}\nAnswer: {' '.join(example_names)}\n\n"
        f"{text}\n{question.format(value)}\nAnswer:"
    )
    return prompt, names


def _chain(rng: random.Random, size: int) -> tuple[str, list[str]]:
    names: dict[str, None] = {}
    while len(names) <= HOPS:
        names["".join(rng.choices(string.ascii_uppercase, k=5))] = None
    chain = list(names)
    steps = [f"VAR {chain[0]} = {rng.randint(10000, 99998)}"]
    steps += [f"VAR {name} = VAR {before}" for before, name in pairwise(chain)]
    places = sorted(rng.randint(0, size) for _ in steps)
    lines: list[str] = []
    position = 0
    for place, step in zip(places, steps, strict=True):
        lines += [*[FILLER] * (place - position), step]
        position = place
    return "\n".join(lines + [FILLER] * (size - position)), chain


def _value_of(text: str) -> str:
    return next(line.rsplit(" ", 1)[1] for line in text.split("\n") if line.startswith("VAR "))


def common_words(rng: random.Random, size: int, limit: int) -> tuple[str, list[str]]:
    """Return a prompt with a numbered list of words, ten of which are frequent, and those ten."""
    often, seldom = (30, 3) if limit >= SHORT else (6, 1)
    example_often, example_seldom, example_size = (10, 3, 40) if limit >= SHORT else (3, 1, 20)
    example, example_answer = _list(rng, example_size, example_often, example_seldom)
    text, answer = _list(rng, size, often, seldom)
    question = f"Which {COMMON} words are the most frequent in the list? Reply with these words only."
    prompt = (
        "Some words of a numbered list are more frequent than the others.\n\n"
        f"{example}\n{question}\nAnswer: {' '.join(example_answer)}\n\n{text}\n{question}\nAnswer:"
    )
    return prompt, answer


def _list(rng: random.Random, size: int, often: int, seldom: int) -> tuple[str, list[str]]:
    words = new_words(rng, max(size, COMMON + 1))
    common = words[:COMMON]
    listed = common * often + words[COMMON:] * seldom
    rng.shuffle(listed)
    return " ".join(f"{number}. {word}" for number, word in enumerate(listed, 1)), common


def frequent_words(rng: random.Random, size: int, limit: int) -> tuple[str, list[str]]:
    """Return a prompt with invented words, whose frequencies fall with the square of their rank, and ranks 2 to 4.

    The word of rank 1 is written as dots.
    """
    vocabulary: dict[str, None] = {}
    while len(vocabulary) < max(limit // 50, 5):
        vocabulary["".join(rng.choices(string.ascii_lowercase, k=6))] = None
    words = list(vocabulary)
    text = [
        "..." if rank == 1 else word
        for rank, word in enumerate(words, 1)
        for _ in range(int(size / (ZETA_2 * rank * rank)))
    ]
    rng.shuffle(text)
    prompt = (
        "A text in a code has words of which some are more frequent than the others. Dots stand for what could not be "
        f"read; leave them out.\n\n{' '.join(text)}\n\nWhich three words are the most frequent? Reply with them only."
    )
    return prompt, words[1:4]
