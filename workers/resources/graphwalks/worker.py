"""graphwalks: questions about a graph whose edges fill a long prompt. The reply names nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Set
from typing import Any

import gymq

# White space is matched possessively, so a line of them takes linear time.
_OPENING = re.compile(r"Final Answer:\s*+\[")


class GraphRow(gymq.Row):
    expected_answer: str  # a JSON list of names
    problem_type: str
    n_tokens: int | None = None
    prompt_chars: int | None = None


class GraphWalks(gymq.Resources[GraphRow]):
    """Reward is the F1 of the nodes in the reply's last line."""

    reward_range = (0.0, 1.0)
    row_kinds = ("parents", "bfs")

    @classmethod
    def make_rows(cls, wanted: gymq.RowsWanted) -> Iterator[dict[str, Any]]:
        """Make questions about random graphs."""
        from gymq.workers.resources.graphwalks.generate import make_rows

        return make_rows(wanted)

    async def verify(self, request: gymq.VerifyRequest[GraphRow]) -> gymq.Verdict:
        nodes = predicted_nodes(request.reply_text)
        score = 0.0 if nodes is None else f1(frozenset(nodes), expected_nodes(request.row.expected_answer))
        return gymq.Verdict(score, f1=score, parse_failed=nodes is None, predicted_nodes=nodes or [])


def predicted_nodes(reply: str) -> list[str] | None:
    """Return the nodes that the last line of a reply names, in their order; None if it is not an answer line.

    A line ends at a line feed; blank ones do not count. The list ends at the last closing bracket of the line.
    """
    lines = [line for line in reply.strip().split("\n") if line.strip()]
    opening = _OPENING.search(lines[-1]) if lines else None
    if opening is None:
        return None
    end = lines[-1].rfind("]", opening.end())
    if end < 0:
        return None
    names = (name.strip() for name in lines[-1][opening.end() : end].split(","))
    return [name for name in names if name]


def expected_nodes(text: str) -> Set[Hashable]:
    """Return the elements of a JSON list; a value of another type gives what Python's `set` makes of it, or nothing."""
    try:
        expected: Any = json.loads(text)
        return frozenset(expected)
    except (ValueError, TypeError, RecursionError):
        return frozenset()


def f1(predicted: Set[Hashable], expected: Set[Hashable]) -> float:
    """Return the harmonic mean of precision and recall of a set of nodes, from 0 to 1; 1 if both sets are empty."""
    if not predicted and not expected:
        return 1.0
    common = len(predicted & expected)
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(expected)
    return 2 * precision * recall / (precision + recall)
