"""The tasks to train on and those kept for the evaluation: sums, choices, and sums by means of a tool."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

from gymq.ext.policy_check.battery import ADD

Row = dict[str, Any]

KINDS = ("sum", "choice", "tool")
HELD_OUT = 16  # tasks of each kind that are never trained on


class Tasks:
    """Draws tasks; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._pairs = list(itertools.product(range(10), repeat=2))
        self._fours = list(itertools.permutations(range(10), 4))
        self._chance.shuffle(self._pairs)
        self._chance.shuffle(self._fours)

    def held_out(self) -> Iterator[Row]:
        """The tasks of the evaluation."""
        for a, b in self._pairs[:HELD_OUT]:
            yield _sum(a, b)
            yield _tool(a, b)
        for four in self._fours[:HELD_OUT]:
            yield _choice(four)

    def draw_again(self, count: int) -> Iterator[Row]:
        """Other draws of the tasks to train on, the same ones each time."""
        self._chance.seed(count)
        yield from self.draw(count)

    def to_train_on(self, num_distinct: int) -> Iterator[Row]:
        """Tasks to train on, without an end: so many again and again; with 0, always others."""
        if num_distinct:
            return itertools.cycle(list(self.draw(num_distinct)))
        return (task for _ in itertools.count() for task in self.draw(1))

    def draw(self, count: int) -> Iterator[Row]:
        """So many tasks to train on."""
        for _ in range(count):
            kind = self._chance.choice(KINDS)
            if kind == "choice":
                yield _choice(self._chance.choice(self._fours[HELD_OUT:]))
            else:
                a, b = self._chance.choice(self._pairs[HELD_OUT:])
                yield _sum(a, b) if kind == "sum" else _tool(a, b)


def _sum(a: int, b: int) -> Row:
    question = f"What is {a} + {b}?"
    return _row("sum", "math_with_judge", question, question=question, expected_answer=str(a + b))


def _tool(a: int, b: int) -> Row:
    row = _row("tool", "adder", f"What is {a} + {b}?", expected_sum=a + b)
    row["responses_create_params"]["tools"] = [ADD]
    return row


def _choice(four: tuple[int, ...]) -> Row:
    numbers = dict(zip("ABCD", four, strict=True))
    question = "Which number is the largest?" + "".join(f"\n{letter}: {number}" for letter, number in numbers.items())
    options = [{letter: str(number)} for letter, number in numbers.items()]
    return _row("choice", "mcqa", question, options=options, expected_answer=max(numbers, key=numbers.__getitem__))


def _row(kind: str, environment: str, user: str, **members: Any) -> Row:
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": user}],
            "temperature": 1.0,
            "max_output_tokens": 64,
        },
        "kind": kind,
        "agent_ref": {"name": f"{environment}_simple_agent"},
        **members,
    }
