"""graphwalks: questions about a graph whose edges fill a long prompt. The reply names nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymq.workers.resources.graphwalks.answers import expected_nodes, f1, predicted_nodes

import gymq


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
