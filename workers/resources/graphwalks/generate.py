"""Make rows: random graphs as lists of edges, and questions for parents and for nodes at a distance."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

from gymq.workers.resources.ruler.fitting import largest_size, made_to_fit

import gymq

DEFAULT_TOKENS = 8192
STEP = 5  # edges
EDGES_PER_NODE = 2
DEPTHS = (1, 2, 3)

Edge = tuple[str, str]
Sample = tuple[str, set[str]]  # the prompt, and the nodes that it asks for

_TASK = (
    "The lines below are the edges of a directed graph. `A -> B` is an edge from the node A to the node B.\n\n"
    "{edges}\n\n{question} End your reply with the line `Final Answer: [node, node]`, with the names of the nodes, and "
    "nothing after it. If there are none, leave the brackets empty."
)


def make_rows(wanted: gymq.RowsWanted) -> Iterator[dict[str, Any]]:
    """Yield questions of the wanted types in turn, about graphs as large as fits."""
    limit = wanted.tokens or DEFAULT_TOKENS
    size = 0
    for index, problem_type in enumerate(islice(cycle(wanted.kinds), wanted.count)):

        def make(size: int, seed: str = f"{wanted.seed}:{problem_type}:{index}", kind: str = problem_type) -> Sample:
            return _sample(random.Random(seed), size, kind)

        def length_of(sample: Sample) -> int:
            return wanted.count_tokens(sample[0])

        # All prompts of a size are about as long.
        size = size or largest_size(lambda size: length_of(make(size)), limit, STEP)
        prompt, nodes = made_to_fit(make, length_of, size, STEP, limit)
        yield {
            "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
            "expected_answer": json.dumps(sorted(nodes)),
            "problem_type": problem_type,
            "n_tokens": wanted.count_tokens(prompt),
            "prompt_chars": len(prompt),
            "agent_ref": {"type": "responses_api_agents", "name": "graphwalks_simple_agent"},
        }


def _sample(rng: random.Random, num_edges: int, problem_type: str) -> Sample:
    names = [f"{rng.getrandbits(40):010x}" for _ in range(max(num_edges // EDGES_PER_NODE, 4))]
    edges = [(rng.choice(names), rng.choice(names)) for _ in range(num_edges)]
    if problem_type == "parents":
        node = rng.choice(edges)[1]
        question, nodes = f"Find the parents of node {node}.", parents(edges, node)
    else:
        node, depth = rng.choice(edges)[0], rng.choice(DEPTHS)
        question = (
            f"Perform a BFS from node {node} with depth {depth}: find the nodes whose shortest path from it has "
            f"exactly {depth} edges, not those that are nearer."
        )
        nodes = at_distance(edges, node, depth)
    return _TASK.format(edges="\n".join(f"{start} -> {end}" for start, end in edges), question=question), nodes


def parents(edges: list[Edge], node: str) -> set[str]:
    """Return the nodes with an edge to a node, without itself."""
    return {start for start, end in edges if end == node} - {node}


def at_distance(edges: list[Edge], node: str, depth: int) -> set[str]:
    """Return the nodes whose shortest path from a node has exactly that many edges."""
    following: dict[str, set[str]] = defaultdict(set)
    for start, end in edges:
        following[start].add(end)
    seen, level = {node}, {node}
    for _ in range(depth):
        level = {end for start in level for end in following[start]} - seen
        seen |= level
    return level
