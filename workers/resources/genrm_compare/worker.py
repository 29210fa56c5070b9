"""genrm_compare: answers to one prompt, compared in pairs by a generative reward model.

The reward of a rollout is relative to the others of its prompt: the mean of its scores over its comparisons. Rollouts
therefore wait for each other, and all of an instance meet in one process.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

import pydantic
from gymq.workers.resources.genrm_compare.aggregation import (
    AggregationOptions,
    Answer,
    Comparison,
    metrics_of,
    scores_of,
)
from gymq.workers.resources.genrm_compare.cohorts import Cohort, Cohorts, Member, Pair, Strategy, all_pairs
from gymq.workers.resources.genrm_compare.scores import Scores, last_scores, published_scores

import gymq
from gymq.authoring import current_call
from gymq.judge import Judge, JudgeParams, all_of
from gymq.protocol.subjects import RolloutId
from gymq.responses import content_texts, is_message, output_text

BLANK = "None"  # what the model is shown of an answer without text
NO_CALL = "-"  # the rollout of a call that belongs to none

PRINCIPLE = (
    "The better answer does what the user asked for, is right, and says what it does not know. It is as long as the "
    "request needs and no longer. It is worded clearly and politely."
)


class PromptRow(gymq.Row):
    principle: str | None = None
    prompt_id: str | None = None
    task_index: int | None = pydantic.Field(None, alias="_ng_task_index")
    rollout_index: int | None = pydantic.Field(None, alias="_ng_rollout_index")

    def cohort(self) -> tuple[Any, ...]:
        """Return the same for all rollouts that are compared with each other."""
        content = json.dumps([self.responses_create_params["input"], self.principle], sort_keys=True)
        task = self.prompt_id if self.task_index is None else self.task_index
        return task, hashlib.sha256(content.encode()).digest()


class CompareOptions(AggregationOptions):
    without_meaning: ClassVar = AggregationOptions.without_meaning | {"debug_logging"}
    genrm_model_server: gymq.Reference
    genrm_responses_create_params: JudgeParams = pydantic.Field({"input": []}, validate_default=True)
    num_rollouts_per_prompt: pydantic.NonNegativeInt = 1
    comparison_strategy: Strategy = "circular"
    num_judges_per_comparison: pydantic.PositiveInt = 1
    use_principle: bool = False
    default_principle: str = PRINCIPLE
    aggregator_method: Literal["simple_tiebreaker"] = "simple_tiebreaker"
    genrm_parse_retries: pydantic.NonNegativeInt = 3
    genrm_parse_retry_sleep_s: pydantic.NonNegativeFloat = 0.2
    hardened: bool = True  # false: see `published_scores`
    cohort_timeout_s: pydantic.PositiveFloat = 300.0  # for the rollouts of a prompt to come, from the first one on

    @pydantic.field_validator("num_workers")
    @classmethod
    def _one_process(cls, num_workers: int) -> int:
        if num_workers > 1:
            raise ValueError("the rollouts of a prompt must be in one process, so only 1 is possible")
        return num_workers


class GenRMCompare(gymq.Resources[PromptRow]):
    """Reward relative to the prompt's other rollouts: the mean score of a reward model that compares them in pairs."""

    Options = CompareOptions
    reward_range = (-1.5, 7.5)  # of a reward model that keeps to its scale, without bonuses
    deterministic = False
    needs = frozenset({"judge"})
    max_concurrency = 20_000  # most of them only wait for each other

    async def start(self) -> None:
        options = self.options
        self.reward_range = (-math.inf, math.inf)  # whatever the model says counts
        model, params = options.genrm_model_server.name, options.genrm_responses_create_params
        self._judge = Judge(self, model, params, max_concurrency=None)
        self._neutral = Scores(options.default_score, options.default_score, options.default_ranking)
        self._read = last_scores if options.hardened else published_scores
        self._cohorts = Cohorts(options.cohort_timeout_s)

    async def stop(self) -> None:
        self._cohorts.stop()

    async def verify(self, request: gymq.VerifyRequest[PromptRow]) -> gymq.Verdict:
        options, row = self.options, request.row
        if options.num_rollouts_per_prompt <= 1:
            return gymq.Verdict(options.default_score)
        conversation = shown(row.responses_create_params["input"])
        principle = self._principle(row.principle)

        async def compare(pair: Pair, first: Answer, second: Answer) -> list[Comparison]:
            return await self._compare(conversation, principle, pair, first, second)

        rollout = current_call.get().rollout
        run = RolloutId.run_of(rollout)
        member = Member(object() if rollout == NO_CALL else rollout, Answer.of(request.response))
        return await self._cohorts.verdict(
            (run, *row.cohort()),
            member,
            lambda: Cohort(options.num_rollouts_per_prompt, options.comparison_strategy, compare, self._verdicts),
        )

    @gymq.tool(offered=False)
    async def compare(
        self,
        conversation_history: list[dict[str, str | list[dict[str, Any]] | None]],
        response_objs: list[dict[str, Any]],
        principle: str | None = None,
    ) -> dict[str, Any]:
        """Compare responses to a conversation with each other, and give each a reward."""
        answers = [_answer(response, place) for place, response in enumerate(response_objs)]
        if len(answers) < 2:
            rewards = [self.options.default_score for _ in answers]
            return {"rewards": rewards, "comparison_results": None, "metrics": None}
        conversation = shown(conversation_history)
        groups = await all_of(
            self._compare(conversation, self._principle(principle), (i, j), answers[i], answers[j])
            for i, j in all_pairs(len(answers), self.options.comparison_strategy)
        )
        # All pairs of the first judge, then those of the second.
        comparisons = [comparison for judge in zip(*groups, strict=True) for comparison in judge]
        _check_asked(comparisons)
        return {
            "rewards": scores_of(answers, comparisons, self.options),
            "comparison_results": [comparison.members() for comparison in comparisons],
            "metrics": metrics_of(comparisons),
        }

    def _principle(self, own: str | None) -> str | None:
        return (own or self.options.default_principle) if self.options.use_principle else None

    async def _compare(
        self, conversation: list[dict[str, str]], principle: str | None, pair: Pair, first: Answer, second: Answer
    ) -> list[Comparison]:
        """Return one comparison by each judge."""
        metadata = {"response_1": _material(first), "response_2": _material(second)}
        if principle is not None:
            metadata["principle"] = principle
        request = {"input": conversation, "metadata": metadata}
        judges = range(self.options.num_judges_per_comparison)
        return await all_of(self._asked(request, (*pair, judge)) for judge in judges)

    async def _asked(self, request: dict[str, Any], places: tuple[int, int, int]) -> Comparison:
        """Return one comparison. A reply without scores is asked for again; after some times it counts as neutral.

        A model that cannot be asked gives the neutral scores, marked as failed.

        Args:
            places: of the first answer, of the second, and the judge's number.
        """
        for remaining in range(self.options.genrm_parse_retries, -1, -1):
            try:
                response = await self._judge.send(request)
            except gymq.JudgeFailed:
                return Comparison(*places, self._neutral, failed=True)
            scores = self._read(output_text(response), self._neutral)
            if scores is not None:
                return Comparison(*places, scores)
            if remaining:
                await asyncio.sleep(self.options.genrm_parse_retry_sleep_s)
        return Comparison(*places, self._neutral)

    def _verdicts(self, answers: Sequence[Answer], comparisons: list[Comparison]) -> list[gymq.Verdict]:
        _check_asked(comparisons)
        failed = sum(comparison.failed for comparison in comparisons)
        return [
            gymq.Verdict(score, cohort_size=len(answers), num_failed_comparisons=failed)
            for score in scores_of(answers, comparisons, self.options)
        ]


def shown(given: str | Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the messages of a request's `input` as the reward model is shown them: roles and texts.

    Texts in parts are joined; items that are not messages are left out.
    """
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages = [item for item in given if is_message(item)]
    return [{"role": item["role"], "content": "".join(content_texts(item.get("content")))} for item in messages]


def _material(answer: Answer) -> str:
    return answer.text if answer.text.strip() else BLANK


def _check_asked(comparisons: list[Comparison]) -> None:
    """A single comparison that failed counts as neutral, but a group without any judgement has no scores."""
    if all(comparison.failed for comparison in comparisons):
        raise gymq.JudgeFailed(f"the reward model could not be asked for any of {len(comparisons)} comparisons")


def _answer(response: dict[str, Any], place: int) -> Answer:
    output = response.get("output")
    if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
        raise gymq.ToolError(422, f"response_objs.{place}.output has to be a list of objects")
    return Answer.of(response)
