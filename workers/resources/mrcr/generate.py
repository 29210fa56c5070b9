"""Make rows: long conversations with several texts of one kind about one thing, and requests for one of them."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

from gymq.workers.resources.ruler.vocabulary import ADJECTIVES, NOUNS, prose

import gymq

DEFAULT_TOKENS = 8192
KINDS = ("diary entry", "fable", "letter", "news report", "poem", "riddle", "song", "speech")
ORDINALS = ("1st", "2nd", "3rd", "4th", "5th", "6th", "7th", "8th")
RANDOM_CHARACTERS = 10
WORDS = (30, 90)  # of a text

Text = tuple[str, str, str]  # its kind, what it is about, and its words


def make_rows(wanted: gymq.RowsWanted) -> Iterator[dict[str, Any]]:
    """Yield conversations as long as they may be, with the wanted numbers of needles in turn."""
    limit = wanted.tokens or DEFAULT_TOKENS
    for index, needles in enumerate(islice(cycle(wanted.kinds), wanted.count)):
        yield _row(random.Random(f"{wanted.seed}:{needles}:{index}"), int(needles), limit, wanted)


def _row(rng: random.Random, num_needles: int, limit: int, wanted: gymq.RowsWanted) -> dict[str, Any]:
    kind, about = rng.choice(KINDS), _thing(rng)
    needles = [_text(rng, kind, about) for _ in range(num_needles)]
    asked = rng.randrange(num_needles)
    characters = "".join(rng.choices(string.ascii_letters + string.digits, k=RANDOM_CHARACTERS))
    question = (
        f"Repeat the {ORDINALS[asked]} {kind} about {about} word for word. Put {characters} in front of it, with "
        "nothing before, between or after."
    )
    used = wanted.count_tokens(question) + sum(_tokens(text, wanted) for text in needles)
    if used > limit:
        raise gymq.OptionsError(f"{num_needles} needles: give at least {used - limit} tokens more")
    others: list[Text] = []
    while True:
        text = _other_text(rng, kind, about)
        used += _tokens(text, wanted)
        if used > limit:
            used -= _tokens(text, wanted)
            break
        others.append(text)
    texts = _mixed(rng, needles, others)
    return {
        "responses_create_params": {
            "input": [*(turn for text in texts for turn in _turns(text)), {"role": "user", "content": question}]
        },
        "expected_answer": characters + needles[asked][2],
        "random_string_to_prepend": characters,
        "n_needles": num_needles,
        "n_tokens": used,
        "agent_ref": {"type": "responses_api_agents", "name": "mrcr_simple_agent"},
    }


def _text(rng: random.Random, kind: str, about: str) -> Text:
    return kind, about, " ".join(prose(rng, rng.randint(*WORDS)))


def _other_text(rng: random.Random, kind: str, about: str) -> Text:
    """Return a text of another kind, or about something else; often one of the two is the same."""
    while True:
        other_kind = kind if rng.random() < 0.3 else rng.choice(KINDS)
        other = about if rng.random() < 0.3 else _thing(rng)
        if (other_kind, other) != (kind, about):
            return _text(rng, other_kind, other)


def _thing(rng: random.Random) -> str:
    return f"the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"


def _mixed(rng: random.Random, needles: list[Text], others: list[Text]) -> list[Text]:
    """Return all texts, the needles in their order at random places."""
    places = set(rng.sample(range(len(needles) + len(others)), len(needles)))
    in_order, rest = iter(needles), iter(others)
    return [next(in_order if place in places else rest) for place in range(len(needles) + len(others))]


def _turns(text: Text) -> list[dict[str, str]]:
    kind, about, words = text
    return [
        {"role": "user", "content": f"Write a {kind} about {about}."},
        {"role": "assistant", "content": words},
    ]


def _tokens(text: Text, wanted: gymq.RowsWanted) -> int:
    return sum(wanted.count_tokens(turn["content"]) for turn in _turns(text))
