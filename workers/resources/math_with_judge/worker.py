"""math_with_judge: a mathematical answer, compared symbolically by math-verify and, if it says no, by a judge model.

The judge is asked twice, with the answers in both orders, and has to find them equal both times.
"""

from __future__ import annotations

from typing import Any

import pydantic

import gymq
from gymq import responses
from workers.resources.math_with_judge.equivalence import EquivalenceChecker
from workers.resources.math_with_judge.judge import judge_request, says_equal


class MathRow(gymq.Row):
    question: str
    expected_answer: str


class MathOptions(gymq.WorkerOptions):
    should_use_judge: bool = False
    judge_model_server: gymq.Reference | None = None
    judge_responses_create_params: dict[str, Any] = pydantic.Field({"input": []})
    library_verifier_timeout_seconds: pydantic.PositiveFloat = 10.0
    library_verifier_max_concurrency: pydantic.PositiveInt = 32

    @pydantic.field_validator("judge_responses_create_params")
    @classmethod
    def _check_params(cls, params: dict[str, Any]) -> dict[str, Any]:
        return responses.validate_params({"input": [], **params})

    @pydantic.model_validator(mode="after")
    def _check_judge(self) -> MathOptions:
        if self.should_use_judge and self.judge_model_server is None:
            raise ValueError("should_use_judge is on, so judge_model_server has to name a model")
        return self


class Math(gymq.Resources[MathRow]):
    """Reward 1 if the reply's answer is equivalent to the expected one."""

    Options = MathOptions

    async def start(self) -> None:
        options = self.options
        self._library = EquivalenceChecker(
            options.library_verifier_timeout_seconds, options.library_verifier_max_concurrency
        )

    async def stop(self) -> None:
        self._library.close()

    async def verify(self, request: gymq.VerifyRequest[MathRow]) -> gymq.Verdict:
        row, reply = request.row, request.reply_text
        library = await self._library.check(row.expected_answer, reply)
        reward, evaluations = library.reward, None
        if self.options.should_use_judge and not library.reward:
            answer = reply if library.extracted_answer is None else library.extracted_answer
            reward, evaluations = await self._judge(row, answer)
        return gymq.Verdict(
            reward,
            extracted_answer=library.extracted_answer,
            library_reward=library.reward,
            judge_evaluations=evaluations,
        )

    async def _judge(self, row: MathRow, answer: str) -> tuple[float, list[dict[str, Any]]]:
        evaluations: list[dict[str, Any]] = []
        for answer_a, answer_b in ((row.expected_answer, answer), (answer, row.expected_answer)):
            params = judge_request(self.options.judge_responses_create_params, row.question, answer_a, answer_b)
            response = await self.ask(self.options.judge_model_server.name, params)
            evaluations.append({"request": params, "response": response})
            if not says_equal(response):
                return 0.0, evaluations
        return 1.0, evaluations
