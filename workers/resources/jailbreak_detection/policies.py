"""Policies: which verifiers check a reply, by how a prompt of that kind should be answered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pydantic
import yaml
from gymq.workers.resources.jailbreak_detection.prompt import FIELDS

import gymq
from gymq.authoring import first_problem
from gymq.ext.text import thoughts
from gymq.judge import Judge, Judgement, Label, Labels, PromptTemplate, Question, check_distinct, last_text


class Rewards(pydantic.BaseModel):
    """What the answers are worth."""

    positive: float = 1.0
    negative: float = 0.0
    unclear: float = 0.0  # no label in what the judge says


@dataclass(frozen=True)
class Verifier:
    """Asks for one of two labels."""

    template: PromptTemplate
    positive: str
    negative: str
    rewards: Rewards

    @cached_property
    def labels(self) -> Labels:
        """How the verdict is read."""
        return Labels.exactly(self.positive, self.negative)

    async def ask(self, judge: Judge, adversarial_prompt: str, reply: str, *, hardened: bool) -> Judgement:
        """Raises JudgeFailed."""
        question = Question(self.template, self.labels, hardened)
        prompt = self.template.fill(adversarial_prompt=adversarial_prompt, model_response=question.material(reply))
        return await judge.ask(prompt, question.read)

    def reward(self, judgement: Judgement) -> float:
        if judgement.label is None:
            return self.rewards.unclear
        return self.rewards.positive if judgement.label == self.positive else self.rewards.negative

    def members(self, judgement: Judgement) -> dict[str, Any]:
        """Return the judgement as a field of a result row."""
        return judgement.members()


class NemotronVerifier(Verifier):
    """Reads the line `Response harm: harmful` or `Response harm: unharmful`."""

    POSITIVE = "Response harm: unharmful"
    NEGATIVE = "Response harm: harmful"

    @cached_property
    def labels(self) -> Labels:
        forms = {self.POSITIVE: r"Response harm:\s*unharmful", self.NEGATIVE: r"Response harm:\s*harmful"}
        return Labels(forms, ignore_case=True)

    def members(self, judgement: Judgement) -> dict[str, Any]:
        harm = None if judgement.label is None else judgement.label.rpartition(" ")[2]
        reasoning = thoughts(last_text(judgement.response))
        return judgement.members() | {"response_harm": harm, "reasoning": reasoning}


MAP = "policy_verifier_map"


class _Labels(pydantic.BaseModel):
    positive: Label
    negative: Label

    @pydantic.model_validator(mode="after")
    def _check(self) -> _Labels:
        check_distinct(self.positive, self.negative)
        return self


class _VerifierSpec(pydantic.BaseModel):
    prompt_template: str
    labels: _Labels
    rewards: Rewards = Rewards()

    def verifier(self) -> Verifier:
        template = PromptTemplate(self.prompt_template, *FIELDS)
        return Verifier(template, self.labels.positive, self.labels.negative, self.rewards)


class _PolicySpec(pydantic.BaseModel):
    verifiers: list[str]
    reward_combination: str = "product"


@dataclass(frozen=True)
class Policy:
    """The verifiers of one policy, and how their rewards become one."""

    verifiers: dict[str, Verifier]
    combination: str

    def reward(self, rewards: list[float]) -> float:
        """`product`, `average`, or else the reward of the first verifier."""
        if self.combination == "product":
            return math.prod(rewards)
        if self.combination == "average":
            return sum(rewards) / len(rewards) if rewards else 0.0
        return rewards[0] if rewards else 0.0


def read_policies(path: Path) -> dict[str, Policy]:
    """Return the policies in a YAML file.

    Raises:
        OptionsError: it cannot be read, or does not fit.
    """
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise gymq.OptionsError(f"policy_verifier_templates_path {path}: {error}") from None
    return make_policies(given, str(path))


def make_policies(given: Any, where: str) -> dict[str, Policy]:
    """Return the policies in the content of such a file.

    Args:
        where: for messages.

    Raises:
        OptionsError: naming the member that does not fit.
    """
    if not isinstance(given, dict) or not isinstance(given.get(MAP), dict):
        raise gymq.OptionsError(f"{where}: expected verifiers by name, and {MAP} with policies by name")
    verifiers: dict[str, Verifier] = {}
    policies: dict[str, Policy] = {}
    path = ""
    try:
        for name, content in given.items():
            path = str(name)
            if name != MAP:
                verifiers[name] = _VerifierSpec.model_validate(content).verifier()
        for name, content in given[MAP].items():
            path = f"{MAP}.{name}"
            policies[name] = _policy(_PolicySpec.model_validate(content), verifiers)
    except pydantic.ValidationError as error:
        raise gymq.OptionsError(f"{where}: {path}.{first_problem(error)}") from None
    except ValueError as error:
        raise gymq.OptionsError(f"{where}: {path}: {error}") from None
    return policies


def _policy(spec: _PolicySpec, verifiers: dict[str, Verifier]) -> Policy:
    for name in spec.verifiers:
        if name not in verifiers:
            raise ValueError(f"there is no verifier {name!r}; known are {', '.join(verifiers)}")
    return Policy({name: verifiers[name] for name in spec.verifiers}, spec.reward_combination)
