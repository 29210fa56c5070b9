"""What the tiny policy learns: sums, choices among four numbers, and sums by means of a tool."""

from __future__ import annotations

import json
import random

Part = tuple[str, bool]  # a piece of text, and whether the policy is trained to write it

KINDS = {"sum": 0.5, "choice": 0.3, "tool": 0.2}
"""The kinds of tasks, with their shares of the training."""


def dialogue(chance: random.Random, kind: str, noise: float) -> list[Part]:
    """A task with its solution, as the chat template writes it.

    Args:
        noise: how often the answer is drawn at random, 0 to 1; what a tool has answered is always believed.
    """
    if kind == "choice":
        numbers = chance.sample(range(10), 4)
        question = "Which number is the largest?" + "".join(
            f"\n{letter}: {number}" for letter, number in zip("ABCD", numbers, strict=True)
        )
        return _answered(question, "ABCD"[numbers.index(max(numbers))], list("ABCD"), chance, noise)
    a, b = chance.randrange(10), chance.randrange(10)
    question = f"What is {a} + {b}?"
    if kind == "sum":
        return _answered(question, str(a + b), [str(number) for number in range(19)], chance, noise)
    # Drawn as for the others, so that the order of random numbers does not depend on the kind.
    _answer(str(a + b), [str(number) for number in range(19)], chance, noise)
    arguments = json.dumps({"a": a, "b": b})
    return [
        ("<|im_start|>system\nTools: add<|im_end|>\n" + _asked(question), False),
        (f'<tool_call>{{"name": "add", "arguments": {arguments}}}</tool_call><|im_end|>', True),
        (f"\n<|im_start|>tool\n{a + b}<|im_end|>\n<|im_start|>assistant\n", False),
        (f"\\boxed{{{a + b}}}<|im_end|>", True),
    ]


def _answered(question: str, right: str, possible: list[str], chance: random.Random, noise: float) -> list[Part]:
    return [
        (_asked(question), False),
        (f"\\boxed{{{_answer(right, possible, chance, noise)}}}<|im_end|>", True),
    ]


def _answer(right: str, possible: list[str], chance: random.Random, noise: float) -> str:
    return chance.choice(possible) if chance.random() < noise else right


def _asked(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
