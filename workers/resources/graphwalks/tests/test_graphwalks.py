"""What the recorded cases cannot say: each rule by itself, odd expected answers, brackets without end, made rows."""

import json
from typing import Any

import pytest
from gymq.workers.resources.graphwalks.generate import at_distance, parents
from gymq.workers.resources.graphwalks.worker import GraphWalks, expected_nodes, predicted_nodes

import gymq
from gymq.testing import Harness, prompt, reply


def row(expected: Any, **members: Any) -> dict[str, Any]:
    return {**prompt("?"), "expected_answer": expected, "problem_type": "bfs", **members}


async def verdict(content: dict[str, Any], said: str) -> gymq.Verdict:
    async with Harness(GraphWalks) as env:
        return await env.verify(content, reply(said))


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("Final Answer: [a, b]", ["a", "b"]),
        ("so Final Answer:[ a ,,b, ] then", ["a", "b"]),
        ("Final Answer: [a]\n \n", ["a"]),
        ("Final Answer: [ ]", []),
        ("Final Answer: [a] and [b]", ["a] and [b"]),
        ("Final Answer: [Final Answer: [a]", ["Final Answer: [a"]),
        ("Final Answer:\t [a, a]", ["a", "a"]),
        ("Final Answer: [a\rb]", ["a\rb"]),
        ("Final Answer: [a]\rend", ["a"]),
        ("Final Answer: [a,\nb]", None),
        ("Final Answer: [a]\nend", None),
        ("final answer: [a]", None),
        ("Final Answer : [a]", None),
        ("Final Answer: (a)", None),
        ("Final Answer: a]", None),
        ("] Final Answer: [a", None),
        ("Final Answer: [a", None),
        (" \n ", None),
        ("", None),
    ],
)
def test_nodes_in_a_reply(text, nodes):
    assert predicted_nodes(text) == nodes


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ('["a", "b", "a"]', {"a", "b"}),
        ("[]", set()),
        ("", set()),
        ("a, b", set()),
        ("3", set()),
        ("null", set()),
        ("true", set()),
        ('["a", ["b"]]', set()),
        ('["a", {"b": 1}]', set()),
        ('"ab"', {"a", "b"}),
        ('{"a": 1, "b": 2}', {"a", "b"}),
        ('[1, "a"]', {1, "a"}),
        ("[" * 100_000, set()),
    ],
)
def test_expected_nodes(text, nodes):
    assert expected_nodes(text) == nodes


@pytest.mark.parametrize(
    ("expected", "said", "score", "failed"),
    [
        ('["a", "b"]', "Final Answer: [b, a, a]", 1.0, False),
        ('["a", "b"]', "Final Answer: [A, b]", 0.5, False),
        ('["a"]', "Final Answer: [b]", 0.0, False),
        ("[]", "Final Answer: []", 1.0, False),
        ("[]", "Final Answer: [a]", 0.0, False),
        ("[]", "none", 0.0, True),
        ("nothing", "Final Answer: []", 1.0, False),
        ("[1, 2]", "Final Answer: [1, 2]", 0.0, False),
    ],
)
async def test_the_score(expected, said, score, failed):
    found = await verdict(row(expected), said)
    assert found.reward == found.fields["f1"] == pytest.approx(score)
    assert found.fields["parse_failed"] is failed


async def test_a_line_of_openings_without_end_takes_linear_time():
    found = await verdict(row('["a"]'), "Final Answer: [" * 100_000 + "Final Answer:" + " " * 100_000)
    assert found.fields["parse_failed"]


@pytest.mark.parametrize("members", [{"expected_answer": ["a"]}, {"problem_type": None}, {"n_tokens": "x"}])
async def test_a_row_that_does_not_fit_is_refused(members):
    with pytest.raises(gymq.InvalidTask):
        await verdict(row("[]") | members, "Final Answer: []")


EDGES = [("a", "b"), ("b", "c"), ("c", "a"), ("a", "c"), ("c", "d"), ("d", "d"), ("e", "a")]


def test_parents_are_without_the_node_itself():
    assert parents(EDGES, "d") == {"c"}
    assert parents(EDGES, "a") == {"c", "e"}
    assert parents(EDGES, "e") == set()


def test_nodes_at_exactly_a_distance():
    assert [at_distance(EDGES, "a", depth) for depth in (1, 2, 3)] == [{"b", "c"}, {"d"}, set()]


async def test_made_questions_are_answered_by_their_edges():
    wanted = gymq.RowsWanted(6, 5, 3000, GraphWalks.row_kinds, len)
    rows = list(GraphWalks.make_rows(wanted))
    assert rows == list(GraphWalks.make_rows(wanted))
    async with Harness(GraphWalks) as env:
        for one in rows:
            text = one["responses_create_params"]["input"][0]["content"]
            edges = [(line.split()[0], line.split()[2]) for line in text.split("\n\n")[1].split("\n")]
            words = text.split("\n\n")[2].replace(".", " ").replace(":", " ").split()
            node = words[words.index("node") + 1]
            if one["problem_type"] == "parents":
                nodes = parents(edges, node)
            else:
                nodes = at_distance(edges, node, int(words[words.index("depth") + 1]))
            assert json.loads(one["expected_answer"]) == sorted(nodes)
            assert 2800 < one["n_tokens"] == one["prompt_chars"] <= 3000
            assert (await env.verify(one, reply(f"Final Answer: [{', '.join(nodes)}]"))).reward == 1.0
