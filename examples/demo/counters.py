"""Counting tasks for the demo: change a counter with tools, then read it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from rows import Row, Script, call, make_row, say

NUM_ROWS = 56

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "name": "increment_counter",
        "description": "Add to the counter. A negative number subtracts.",
        "parameters": {
            "type": "object",
            "properties": {"count": {"type": "integer", "description": "What to add"}},
            "required": ["count"],
            "additionalProperties": False,
        },
        "strict": True,
    },
    {
        "type": "function",
        "name": "get_counter_value",
        "description": "Read the counter.",
        "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
        "strict": True,
    },
]


def rows(seed: random.Random) -> Iterator[Row]:
    """Rows with one to four steps. The mistake leaves out the last step, or gets it wrong by one."""
    for number in range(NUM_ROWS):
        start = seed.randint(-20, 40)
        steps = [seed.choice([-7, -4, -3, -1, 1, 2, 3, 5, 6, 8, 9, 12]) for _ in range(1 + number % 4)]
        wrong_steps = [*steps[:-1], steps[-1] + seed.choice([-1, 1])] if number % 2 else steps[:-1]
        yield make_row(
            "example_session_state_mgmt_simple_agent",
            f"Change the counter step by step: {', then '.join(_in_words(step) for step in steps)}. "
            "Then read it and tell me its value.",
            tools=TOOLS,
            solution=_script(start, steps),
            mistake=_script(start, wrong_steps),
            initial_count=start,
            expected_count=start + sum(steps),
        )


def _in_words(step: int) -> str:
    return f"add {step}" if step > 0 else f"subtract {-step}"


def _script(start: int, steps: list[int]) -> Script:
    calls = [[call("increment_counter", count=step)] for step in steps]
    return [*calls, [call("get_counter_value")], [say(f"The counter is at {start + sum(steps)}.")]]
