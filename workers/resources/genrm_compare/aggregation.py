"""From the comparisons within a group of answers to one score for each."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic
from gymq.workers.resources.genrm_compare.scores import Scores

import gymq
from gymq.responses import output_text

_MARKS = (
    re.compile(r"^#{1,6}\s", re.MULTILINE),  # headers
    re.compile(r"^[ \t]*(?:\d+\.|[-*+])\s", re.MULTILINE),  # items of lists
    re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__"),  # bold spans
    re.compile("[\U0001f100-\U0001f2ff\U0001f300-\U0001faff\u2600-\u27bf\u24c2]"),  # emoji
)

MIDDLE = 3.5  # of the rankings from 1 to 6: neither answer is better


class AggregationOptions(gymq.WorkerOptions):
    """How scores are combined, and the terms added to them."""

    default_score: float = 3.0
    default_ranking: float = MIDDLE
    reasoning_bonus: float = 0.0
    answer_bonus: float = 0.0
    top_percentile: float = pydantic.Field(default=0.2, ge=0.0, le=1.0)
    group_reasoning_length_penalty_coeff: float = 0.0
    group_answer_length_penalty_coeff: float = 0.0
    group_style_penalty_coeff: float = 0.0

    @property
    def length_settings(self) -> tuple[float, ...]:
        return (
            self.reasoning_bonus,
            self.answer_bonus,
            self.group_reasoning_length_penalty_coeff,
            self.group_answer_length_penalty_coeff,
        )


@dataclass(frozen=True)
class Answer:
    """One answer of a group."""

    text: str
    reasoning: str

    @classmethod
    def of(cls, response: Mapping[str, Any]) -> Answer:
        """Return what a response says, and what its reasoning items hold."""
        parts = (
            part.get("text")
            for item in response["output"]
            if item.get("type") == "reasoning"
            for part in [*(item.get("summary") or ()), *(item.get("content") or ())]
        )
        return cls(output_text(response), "".join(text for text in parts if isinstance(text, str)))


@dataclass(frozen=True)
class Comparison:
    """What one judge said of two answers.

    Attributes:
        failed: the judge could not be asked, so that the scores are the defaults.
    """

    response_i: int
    response_j: int
    judge_idx: int
    scores: Scores
    failed: bool = False

    def members(self) -> dict[str, Any]:
        """Return it as a field of an answer."""
        return {
            "response_i": self.response_i,
            "response_j": self.response_j,
            "judge_idx": self.judge_idx,
            **vars(self.scores),
        }


def scores_of(answers: Sequence[Answer], comparisons: Sequence[Comparison], options: AggregationOptions) -> list[float]:
    """Return the score of each answer: the mean over its comparisons, and what length and style add to it."""
    collected: list[list[float]] = [[] for _ in answers]
    for comparison in comparisons:
        first, second = _without_tie(comparison.scores)
        collected[comparison.response_i].append(first)
        collected[comparison.response_j].append(second)
    scores = [statistics.fmean(own) if own else options.default_score for own in collected]
    if any(setting > 0 for setting in options.length_settings):
        _add_length_bonuses(scores, answers, options)
    if options.group_style_penalty_coeff > 0:
        _add_shares(scores, [density(answer.text) for answer in answers], options.group_style_penalty_coeff)
    return scores


def metrics_of(comparisons: Sequence[Comparison]) -> dict[str, float]:
    """Mean and standard deviation of the scores as the judges gave them, and the share of ties."""
    given = [score for one in comparisons for score in (one.scores.score_1, one.scores.score_2)]
    ties = sum(one.scores.score_1 == one.scores.score_2 for one in comparisons)
    return {
        "mean_individual_score": statistics.fmean(given),
        "std_individual_score": statistics.pstdev(given),
        "tiebreak_usage_rate": ties / len(comparisons),
    }


def _without_tie(scores: Scores) -> tuple[float, float]:
    """Both scores; equal ones are moved apart by the ranking."""
    shift = MIDDLE - scores.ranking if scores.score_1 == scores.score_2 else 0.0
    return scores.score_1 + shift, scores.score_2 - shift


def _add_length_bonuses(scores: list[float], answers: Sequence[Answer], options: AggregationOptions) -> None:
    reasoning = [len(answer.reasoning.strip()) for answer in answers]
    text = [len(answer.text.strip()) for answer in answers]
    place = max(0, math.floor(len(scores) * options.top_percentile) - 1)
    threshold = sorted(scores, reverse=True)[place]
    _add_bonus(scores, reasoning, threshold, options.reasoning_bonus)
    _add_bonus(scores, text, threshold, options.answer_bonus)
    _add_shares(scores, reasoning, options.group_reasoning_length_penalty_coeff)
    _add_shares(scores, text, options.group_answer_length_penalty_coeff)


def _add_bonus(scores: list[float], lengths: Sequence[int], threshold: float, bonus: float) -> None:
    """For the shortest that is not empty, the first of several, if its score reaches the threshold."""
    length, shortest = min(((length, place) for place, length in enumerate(lengths) if length), default=(0, 0))
    if length and scores[shortest] >= threshold:
        scores[shortest] += bonus


def _add_shares(scores: list[float], amounts: Sequence[float], coefficient: float) -> None:
    """Add to those with little of it, take from those with much; the sum over the group stays the same."""
    low, high = min(amounts), max(amounts)
    if low == high:
        return
    weights = [1 - (amount - low) / (high - low) for amount in amounts]
    mean = statistics.fmean(weights)
    for place, weight in enumerate(weights):
        scores[place] += (weight - mean) * coefficient


def density(text: str) -> float:
    """Headers, list items, bold spans and emoji per character, outside of code blocks; 0 for an empty text."""
    text = _without_code(text)
    length = len(text.strip())
    return sum(len(mark.findall(text)) for mark in _MARKS) / length if length else 0.0


def _without_code(text: str) -> str:
    kept = []
    end = 0
    while (start := text.find("```", end)) >= 0 and (closing := text.find("```", start + 3)) >= 0:
        kept.append(text[end:start])
        end = closing + 3
    return "".join(kept) + text[end:]
