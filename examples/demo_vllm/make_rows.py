"""Writes rows.jsonl: what the tiny policy was trained to answer. The same rows every time."""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gymq.ext.policy_check.battery import ADD

ROWS_OF_A_KIND = 16


def row(agent: str, user: str, tools: list[dict[str, Any]] | None = None, **members: Any) -> dict[str, Any]:
    """A row for the agent instance; `members` are for the verifier."""
    params: dict[str, Any] = {"input": [{"role": "user", "content": user}], "temperature": 1.0, "max_output_tokens": 64}
    if tools is not None:
        params["tools"] = tools
    agent_ref = {"type": "responses_api_agents", "name": f"{agent}_simple_agent"}
    return {"responses_create_params": params, **members, "agent_ref": agent_ref}


def rows(chance: random.Random) -> Iterator[dict[str, Any]]:
    """Sums, choices, and sums by means of a tool."""
    pairs = chance.sample([(a, b) for a in range(10) for b in range(10)], 2 * ROWS_OF_A_KIND)
    for a, b in pairs[:ROWS_OF_A_KIND]:
        question = f"What is {a} + {b}?"
        yield row("math_with_judge", question, question=question, expected_answer=str(a + b))
    for a, b in pairs[ROWS_OF_A_KIND:]:
        yield row("adder", f"What is {a} + {b}?", [ADD], expected_sum=a + b)
    for four in chance.sample(list(itertools.permutations(range(10), 4)), ROWS_OF_A_KIND):
        numbers = dict(zip("ABCD", four, strict=True))
        question = "Which number is the largest?" + "".join(f"\n{letter}: {n}" for letter, n in numbers.items())
        options = [{letter: str(number)} for letter, number in numbers.items()]
        yield row("mcqa", question, options=options, expected_answer=max(numbers, key=numbers.__getitem__))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "rows.jsonl")
    output = parser.parse_args().output
    output.write_text("".join(json.dumps(made) + "\n" for made in rows(random.Random("demo"))), encoding="utf-8")
    print(f"{output} written")


if __name__ == "__main__":
    main()
