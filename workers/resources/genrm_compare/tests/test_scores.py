"""From what reward models say to rewards."""

from typing import Any

import pytest
from gymq.workers.resources.genrm_compare.aggregation import AggregationOptions, Answer, Comparison, density, scores_of
from gymq.workers.resources.genrm_compare.cohorts import all_pairs
from gymq.workers.resources.genrm_compare.scores import Scores, last_scores, published_scores

NEUTRAL = Scores(3.0, 3.0, 3.5)


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ('{"score_1": 4, "score_2": 2, "ranking": 1}', (4.0, 2.0, 1.0)),
        ('{"score_1": 4}', (4.0, 3.0, 3.5)),
        ('{"ranking": "6"}', (3.0, 3.0, 6.0)),
        ('{"score_1": true, "score_2": false}', (1.0, 0.0, 3.5)),
        ('{"overall": {"score_1": 5}, "notes": {"score_1": 1}}', (5.0, 3.0, 3.5)),
        ('{"score_1": 1, "overall": {"score_1": 5}}', (5.0, 3.0, 3.5)),
        ('{"score_1": 1, "overall": {"quality": 5}}', (1.0, 3.0, 3.5)),
        ('First {"score_1": 1}, no: {"score_1": 2}.', (2.0, 3.0, 3.5)),
        ('```json\n{"a": 1} {"score_1": 1} {"score_1": 2}\n``` {"score_1": 3}', (1.0, 3.0, 3.5)),
        ('```JSON\n{"a": 1}\n``` ```json {"score_1": 4}``` ', (4.0, 3.0, 3.5)),
        ('```json\n{"score_1": 4}', (4.0, 3.0, 3.5)),
        ('open { and {"score_1": 4, "why": "a } in \\" a { string"}', (4.0, 3.0, 3.5)),
        ('{"notes": {"score_1": 4}}', None),
        ('{"score_1": null, "score_2": 2}', None),
        ('{"score_1": "high"}', None),
        ('{"score_1": NaN}', None),
        ('{"score_1": 1e999}', None),
        ("{'score_1': 4}", None),
        ('{"overall": 5}', None),
        ("no scores", None),
        ("", None),
    ],
)
def test_scores_are_read(text, scores):
    assert published_scores(text, NEUTRAL) == (None if scores is None else Scores(*scores))


OWN, REPEATED = '```json\n{"score_1": 2}\n```', '```json\n{"score_1": 5}\n```'


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (f"Answer 1 says {REPEATED}, which is not for me.\n{OWN}", 2.0),
        ('```json\n{"score_1": 5} {"score_1": 2}\n``` {"score_1": 4}', 2.0),
        (f"<think>\n{REPEATED}? No.\n</think>\n{OWN}", 2.0),
        (f"<think>\nPerhaps {REPEATED}, but", None),
        ('First {"score_1": 5}, no: {"score_1": 2}.', 2.0),
    ],
)
def test_the_last_scores_count(text, score):
    found = last_scores(text, NEUTRAL)
    assert (found and found.score_1) == score


@pytest.mark.parametrize("text", ["{" * 300_000, '{"' * 150_000, "```json" * 100_000, '{"a":' * 60_000 + "}" * 60_000])
def test_a_text_made_to_take_long_has_no_scores(text):
    assert last_scores(text, NEUTRAL) is None


def test_who_is_compared_with_whom():
    assert all_pairs(2, "circular") == [(0, 1), (1, 0)]
    assert all_pairs(4, "circular") == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert all_pairs(4, "all_pairs") == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def group(scores: list[float], texts: list[str], reasoning: list[str] | None = None, **options: Any) -> list[float]:
    """The scores of answers of which each was compared once with an answer behind the group."""
    thoughts = reasoning or [""] * len(texts)
    answers = [Answer(text, thought) for text, thought in zip(texts, thoughts, strict=True)]
    comparisons = [
        Comparison(place, (place + 1) % len(scores), 0, Scores(score, scores[(place + 1) % len(scores)], 1.0))
        for place, score in enumerate(scores)
    ]
    return scores_of(answers, comparisons, AggregationOptions(**options))


def test_ties_are_broken_by_the_ranking():
    answers = [Answer("a", ""), Answer("b", "")]
    comparisons = [Comparison(0, 1, 0, Scores(3, 3, 1)), Comparison(1, 0, 0, Scores(2, 4, 1))]
    assert scores_of(answers, comparisons, AggregationOptions()) == [(3 + 2.5 + 4) / 2, (3 - 2.5 + 2) / 2]


def test_an_answer_that_was_not_compared_has_the_default_score():
    answers = [Answer("a", ""), Answer("b", ""), Answer("c", "")]
    comparisons = [Comparison(0, 1, 0, Scores(4, 2, 1))]
    assert scores_of(answers, comparisons, AggregationOptions(default_score=2.5)) == [4.0, 2.0, 2.5]


@pytest.mark.parametrize(
    ("scores", "texts", "expected"),
    [
        ([4, 2, 1], ["a", "bb", "cc"], [5, 2, 1]),
        ([4, 2, 1], ["aaa", "b", "cc"], [4, 2, 1]),  # the shortest is not among the best
        ([4, 2, 1], [" ", "bbb", "cc"], [4, 2, 1]),
        ([4, 4.5, 1], ["a", "b", "cc"], [4, 4.5, 1]),  # of two shortest the first counts
    ],
)
def test_a_short_good_answer_gets_a_bonus(scores, texts, expected):
    assert group(scores, texts, answer_bonus=1.0) == expected


def test_short_reasoning_gets_a_bonus_first():
    # The second bonus goes by the scores with the first one in them, and by the old threshold.
    found = group(
        [3, 4, 1], ["a", "bb", "cc"], ["x", "yy", ""], reasoning_bonus=2.0, answer_bonus=1.0, top_percentile=0.7
    )
    assert found == [3 + 2 + 1, 4, 1]


def test_length_moves_scores_within_the_group():
    assert group([3, 4, 1], ["", "b" * 5, "c" * 10], group_answer_length_penalty_coeff=2.0) == [4, 4, 0]
    assert group([3, 4, 1], ["a"] * 3, ["", "", "z"], group_reasoning_length_penalty_coeff=0.3) == pytest.approx(
        [3.1, 4.1, 0.8]
    )
    assert group([3, 4, 1], ["aa", "bb", "cc"], group_answer_length_penalty_coeff=2.0) == [3, 4, 1]


def test_style_moves_scores_within_the_group():
    assert group([3, 4], ["plain words", "**bold** words"], group_style_penalty_coeff=1.0) == [3.5, 3.5]


@pytest.mark.parametrize(
    ("text", "marks", "length"),
    [
        ("", 0, 1),
        ("plain", 0, 5),
        ("# a\n####### b\n#c", 1, 16),
        ("- a\n  * b\n1. c\n1.d", 3, 18),
        ("**a** __b__ **c\nd**", 2, 19),
        ("\U0001f600\u2600\u24c2", 3, 3),
        ("\u4e2d\u6587\u3042\ud55c", 0, 4),  # no emoji
        ("a ```\n# b\n- c\n``` d", 0, 4),
        ("```\n- a", 1, 7),
        ("```# a```", 0, 1),
    ],
)
def test_marks_are_counted(text, marks, length):
    assert density(text) == marks / length


@pytest.mark.parametrize("text", ["```" * 200_001, "\n" * 500_000, "**" * 300_000, "__a" * 200_000, "# " * 300_000])
def test_a_text_made_to_take_long_is_counted(text):
    assert density(text) >= 0
