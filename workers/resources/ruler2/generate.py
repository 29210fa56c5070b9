"""Make rows: the two tasks of RULER's second edition that need no data of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymq.workers.resources.ruler.generate import make_samples, needles_task
from gymq.workers.resources.ruler.needles import Needles

import gymq

DEFAULT_TOKENS = 16384

TASKS = {
    "mk_niah_basic": needles_task(Needles("needles", digits=10)),
    "mv_niah_basic": needles_task(Needles("needles", digits=10, values=4, values_in_haystack=4)),
}


def make_rows(wanted: gymq.RowsWanted) -> Iterator[dict[str, Any]]:
    """Yield rows of the wanted tasks in turn."""
    limit = wanted.tokens or DEFAULT_TOKENS
    for task, prompt, references, length in make_samples(wanted, TASKS, limit):
        yield {
            "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
            "expected_answer": references,
            "eval_type": "ruler2",
            "match_type": "all",
            "task": task,
            "length": length,
            "agent_ref": {"type": "responses_api_agents", "name": "ruler2_simple_agent"},
        }
