"""Problems that a configuration brings, in place of an environment's own data set."""

from __future__ import annotations

import pydantic


class NumberProblem(pydantic.BaseModel):
    question: str
    answer: float


class TextProblem(pydantic.BaseModel):
    question: str
    answer: str | float


PROBLEM_OF_ENV: dict[str, type[pydantic.BaseModel]] = {"gsm8k": NumberProblem, "hotpotqa": TextProblem}
