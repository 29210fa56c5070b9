"""The conversation and the rubric of a row, from its fields or its metadata."""

from __future__ import annotations

from typing import Any, TypeVar

import pydantic

import gymq
from gymq.authoring import first_problem
from gymq.responses import content_text

ModelT = TypeVar("ModelT", bound=pydantic.BaseModel)


class RubricItem(pydantic.BaseModel):
    """One yes-or-no question about the reply."""

    question: str
    pass_criteria: str = "YES"
    weight: pydantic.NonNegativeFloat = 1.0

    def score(self, verdict: str) -> float:
        """1 if the verdict is the one that passes."""
        passing = "NO" if self.pass_criteria.upper() == "NO" else "YES"
        return float(verdict == passing)


class ChallengeRow(gymq.Row):
    rubric: list[RubricItem] | None = None
    context: str | None = None
    metadata: dict[str, Any] | None = None
    uuid: str | int | None = None
    task_id: int | None = None

    def conversation(self) -> str:
        """Return the conversation as the judge is shown it.

        Raises:
            InvalidTask: it is to be made of `metadata.messages`, which do not fit.
        """
        if self.context:
            return self.context
        messages = _in_metadata(_Messages, self.metadata).messages or []
        return "\n\n".join(message.shown() for message in messages if message.role != "thinking")

    def questions(self) -> list[RubricItem]:
        """Return the rubric.

        Raises:
            InvalidTask: it is to be that of the metadata, which does not fit.
        """
        return self.rubric or _in_metadata(_Rubric, self.metadata).rubric or []


class _Message(pydantic.BaseModel):
    role: str
    content: str | list[dict[str, Any]] | None = None

    def shown(self) -> str:
        return f"[{self.role.upper()}]: {content_text(self.content)}"


class _Messages(pydantic.BaseModel):
    messages: list[_Message] | None = None


class _Rubric(pydantic.BaseModel):
    rubric: list[RubricItem] | None = None


def _in_metadata(kind: type[ModelT], metadata: dict[str, Any] | None) -> ModelT:
    try:
        return kind.model_validate(metadata or {})
    except pydantic.ValidationError as error:
        raise gymq.InvalidTask(f"row does not fit multichallenge: metadata.{first_problem(error)}") from None
