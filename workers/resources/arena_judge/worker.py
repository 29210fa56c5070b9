"""arena_judge: open-ended answers. A judge model compares them with a baseline answer, in both orders."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import pydantic
from gymq.workers.resources.arena_judge.verdicts import LABELS, is_loss, is_win, published_verdict, sanitized
from gymq.workers.resources.simpleqa.prompt_files import JudgePrompt, read_prompt

import gymq
from gymq import responses
from gymq.ext.http.chat_request import from_chat_request
from gymq.judge import Judge, JudgedEnvironment, Judgement, JudgeOptions, PromptTemplate, all_of, chosen_template

HERE = Path(__file__).parent
FIELDS = ("question", "answer_1", "answer_2")
PROMPTS = {category: str(HERE / f"{category}.yaml") for category in ("hard_prompt", "creative_writing")}

log = logging.getLogger(__name__)


class BattleRow(gymq.Row):
    question: str | None = None
    baseline_answer: str | None = None
    category: str | None = None
    uid: str | None = None


def _as_responses_params(params: dict[str, Any]) -> dict[str, Any]:
    chat = {**params, "messages": []}
    if "stop" in chat:
        raise ValueError("stop: the Responses API has no stop sequences, and verdicts may depend on them")
    try:
        return responses.validate_params(from_chat_request(chat))
    except responses.ResponsesError as error:
        raise ValueError(str(error)) from None


ChatParams = Annotated[dict[str, Any], pydantic.AfterValidator(_as_responses_params)]
"""Parameters of a chat request, kept as those of a Responses request."""


class ArenaJudge(JudgedEnvironment[BattleRow]):
    """Reward 1 if a judge finds the reply better than the baseline answer, with the reply shown first."""

    class Options(JudgeOptions):
        judge_chat_completions_create_params: ChatParams = pydantic.Field({}, validate_default=True)
        judge_prompts: dict[str, JudgePrompt] | None = None
        judge_prompt_paths: dict[str, str] | None = None
        default_category: str = "hard_prompt"
        sanitize_generations: bool = False
        arena_elo_bootstrap_rounds: pydantic.PositiveInt = 100
        arena_elo_bootstrap_seed: pydantic.NonNegativeInt = 42

    reward_range = (0.0, 1.0)

    async def start(self) -> None:
        options = self.options
        prompts = self._prompts()
        if options.default_category not in prompts:
            known = ", ".join(prompts)
            raise gymq.OptionsError(f"{self.name}: default_category {options.default_category!r} is none of {known}")
        self._templates = {
            category: [
                (role, chosen_template(self.name, text, None, "", *FIELDS))
                for role, text in (("system", prompt.system), ("user", prompt.user))
                if text is not None
            ]
            for category, prompt in prompts.items()
        }
        self._shown: Callable[[str], str] = LABELS.material if options.hardened else str
        self._read = LABELS.read if options.hardened else published_verdict
        self.judge = Judge(
            self,
            options.judge_model_server.name,
            {**options.judge_responses_create_params, **options.judge_chat_completions_create_params},
            max_concurrency=options.judge_endpoint_max_concurrency,
        )

    async def verify(self, request: gymq.VerifyRequest[BattleRow]) -> gymq.Verdict:
        row = request.row
        category = self._category(row.category)
        templates = self._templates[category]
        candidate, baseline = request.reply_text, row.baseline_answer or ""
        if self.options.sanitize_generations:
            candidate, baseline = sanitized(candidate), sanitized(baseline)
        candidate, question = self._shown(candidate), row.question or ""
        first, second = await all_of(
            self._ask(templates, question=question, answer_1=one, answer_2=other)
            for one, other in ((candidate, baseline), (baseline, candidate))
        )
        won = is_win(first.label)
        return gymq.Verdict(
            float(won),
            judgement_gen_base=responses.output_text(first.response),
            judgement_base_gen=responses.output_text(second.response),
            verdict_gen_base=first.label,
            verdict_base_gen=second.label,
            invalid_gen_base=first.label is None,
            invalid_base_gen=second.label is None,
            category=category,
            wins=float(won),
            strict_wins=float(first.label == "A>>B"),
            ties=float(first.label == "A=B"),
            losses=float(is_loss(first.label)),
            double_wins=float(won and is_loss(second.label)),
            judge_evaluations=[first.members(), second.members()],
        )

    async def _ask(self, templates: Iterable[tuple[str, PromptTemplate]], **texts: str) -> Judgement:
        request = {"input": [{"role": role, "content": template.fill(**texts)} for role, template in templates]}
        return await self.judge.judgement(request, lambda response: self._read(responses.output_text(response)))

    def _category(self, given: str | None) -> str:
        if not given:
            return self.options.default_category
        if given not in self._templates:
            log.warning("%s: unknown category %r, judged as %s", self.name, given, self.options.default_category)
            return self.options.default_category
        return given

    def _prompts(self) -> Mapping[str, JudgePrompt]:
        inline, paths = self.options.judge_prompts, self.options.judge_prompt_paths
        if inline is not None and paths is not None:
            raise gymq.OptionsError(f"{self.name}: give judge_prompts or judge_prompt_paths, not both")
        if inline is not None:
            return inline
        files = PROMPTS if paths is None else paths
        return {category: read_prompt(self.name, file, HERE) for category, file in files.items()}
