"""Options of verifiers that ask a judge."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

import pydantic

from gymq import responses
from gymq.authoring import Reference, WorkerOptions
from gymq.judge.prompts import chosen_template
from gymq.judge.reading import Labels, Question

Label = Annotated[str, pydantic.StringConstraints(min_length=1)]


def _check_params(params: dict[str, Any]) -> dict[str, Any]:
    return responses.validate_params({"input": [], **params})


JudgeParams = Annotated[dict[str, Any], pydantic.AfterValidator(_check_params)]
"""Parameters of a Responses request, without or with an `input`, which is replaced."""


class JudgeOptions(WorkerOptions):
    """Options of a verifier that asks a judge."""

    judge_model_server: Reference
    judge_responses_create_params: JudgeParams = pydantic.Field({"input": []}, validate_default=True)
    judge_system_message: str | None = None
    judge_endpoint_max_concurrency: pydantic.PositiveInt | None = 64  # in one process; None: no bound
    hardened: bool = True  # see `Labels`; False: read a verdict as NeMo Gym does

    pairs_of_labels: ClassVar[tuple[tuple[str, str], ...]] = ()  # names of options that must differ

    @pydantic.model_validator(mode="after")
    def _check_labels(self) -> Self:
        for one, other in self.pairs_of_labels:
            check_distinct(getattr(self, one), getattr(self, other))
        return self


def check_distinct(*labels: str) -> None:
    """Check that no two labels are the same, because one of the verdicts could then never be given.

    Raises:
        ValueError: two labels are the same.
    """
    if len(set(labels)) < len(labels):
        raise ValueError(f"the labels {', '.join(map(repr, labels))} must differ")


class EqualityOptions(JudgeOptions):
    """Options of a verifier whose judge says whether two texts mean the same, and may be asked in both orders."""

    judge_equal_label: Label = "[[A=B]]"
    judge_not_equal_label: Label = "[[A!=B]]"
    check_twice_swap: bool = False
    reward_if_swap_fails: pydantic.FiniteFloat = 0.0

    pairs_of_labels: ClassVar = (("judge_equal_label", "judge_not_equal_label"),)


class EqualityTemplateOptions(EqualityOptions):
    """Options of such a verifier whose prompt can be replaced."""

    judge_prompt_template: str | None = None
    judge_prompt_template_fpath: str | None = None

    def question(self, worker: str, default: str, *fields: str) -> Question:
        """Return the question with the configured prompt, or else the default.

        Args:
            worker: the instance's name, for errors.
            default: a template of the template, with `{equal}` and `{different}` where it asks for the labels.

        Raises:
            OptionsError: as from `chosen_template`.
        """
        equal, different = self.judge_equal_label, self.judge_not_equal_label
        inline, file = self.judge_prompt_template, self.judge_prompt_template_fpath
        template = chosen_template(worker, inline, file, default, *fields, equal=equal, different=different)
        return Question(template, Labels.exactly(equal, different), self.hardened)
