"""Comparing a mathematical answer: symbolically by math-verify and, if it says no, by a judge model.

The judge is asked twice, with the answers in both orders, and has to find them equal both times.
"""

from __future__ import annotations

from typing import TypeVar

import pydantic
from gymq.workers.resources.math_with_judge.equivalence import CUT_OFF, Equivalence, boxed, by_library, check, limits
from gymq.workers.resources.math_with_judge.rules import as_meant

import gymq
from gymq.judge import JudgedEnvironment, JudgeOptions, Labels, PromptTemplate, Question, compare
from gymq.processes import CpuTimeUsedUp

EQUAL = "[[A=B]]"
DIFFERENT = "[[A!=B]]"

INSTRUCTIONS = f"""\
You compare two answers to a mathematical problem, as an impartial judge. You do not solve the problem yourself.

Decide whether answer A and answer B are mathematically equivalent, that is, whether both denote the same object. How
they are written does not matter: LaTeX or plain text, another notation, an equivalent form of an expression, units or
words around the answer. If one answer leaves out something that belongs to the result, or says more than the other,
they are different.

Explain your reasoning briefly, then finish with exactly one of these labels:
{EQUAL} if the answers are equivalent,
{DIFFERENT} if they are not."""

QUESTION = PromptTemplate(
    """\
Problem:
{problem}

Answer A:
<answer_a>
{answer_a}
</answer_a>

Answer B:
<answer_b>
{answer_b}
</answer_b>""",
    *("problem", "answer_a", "answer_b"),
)

LABELS = Labels.exactly(EQUAL, DIFFERENT)


class MathRow(gymq.Row):
    question: str
    expected_answer: str


class MathOptions(JudgeOptions):
    should_use_judge: bool = False
    judge_model_server: gymq.Reference | None = None  # type: ignore[assignment]  # see `_check_judge`
    judge_system_message: str | None = INSTRUCTIONS
    library_verifier_timeout_seconds: pydantic.PositiveFloat = 10.0
    library_verifier_max_concurrency: pydantic.PositiveInt = 32

    @pydantic.model_validator(mode="after")
    def _check_judge(self) -> MathOptions:
        if self.should_use_judge and self.judge_model_server is None:
            raise ValueError("should_use_judge is on, so judge_model_server must name a model")
        return self


MathRowT = TypeVar("MathRowT", bound=MathRow)


class MathVerifier(JudgedEnvironment[MathRowT]):
    """The verifier of rows that have a mathematical answer, whatever else they have."""

    reward_range = (0.0, 1.0)
    Options = MathOptions

    async def start(self) -> None:
        options = self.options
        self.compute_limits = limits(options.library_verifier_timeout_seconds, options.library_verifier_max_concurrency)
        self._rule = as_meant if options.hardened else by_library
        self._question = Question(QUESTION, LABELS, options.hardened)

    async def verify(self, request: gymq.VerifyRequest[MathRowT]) -> gymq.Verdict:
        row, reply = request.row, request.reply_text
        library = await self._decide(row.expected_answer, reply)
        if library.cut_off and self.options.hardened and not self.options.should_use_judge:
            await self._check_row(row.expected_answer)
        reward, evaluations = library.reward, None
        if self.options.should_use_judge and not library.reward:
            answer = reply if library.extracted_answer is None else library.extracted_answer
            comparison = await compare(
                lambda a, b: self.judge.ask(prompt(row.question, a, b), self._question.read),
                row.expected_answer,
                self._question.material(answer),
                equal_label=EQUAL,
                swap=True,
            )
            reward, evaluations = float(comparison.agrees), comparison.members()
        return gymq.Verdict(
            reward,
            extracted_answer=library.extracted_answer,
            library_reward=library.reward,
            judge_evaluations=evaluations,
        )

    async def _decide(self, expected_answer: str, reply: str) -> Equivalence:
        try:
            return await self.compute(check, self._rule, expected_answer, reply)
        except CpuTimeUsedUp:
            return CUT_OFF

    async def _check_row(self, expected_answer: str) -> None:
        """Check that the expected answer itself can be compared in time: then a reply that cannot be is wrong.

        Raises:
            InvalidTask: it cannot.
        """
        if (await self._decide(expected_answer, boxed("0"))).cut_off:
            limit = f"{self.options.library_verifier_timeout_seconds:g} s of processor time"
            raise gymq.InvalidTask(f"the row's expected answer could not be compared within {limit}")


def prompt(problem: str, answer_a: str, answer_b: str) -> str:
    """Return the user's message for one comparison."""
    return QUESTION.fill(problem=problem, answer_a=answer_a, answer_b=answer_b)
