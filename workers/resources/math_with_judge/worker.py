"""math_with_judge: a mathematical answer, compared symbolically by math-verify and, if it says no, by a judge model."""

from __future__ import annotations

from gymq.workers.resources.math_with_judge.verifier import MathRow, MathVerifier


class Math(MathVerifier[MathRow]):
    """Reward 1 if the reply's answer is equivalent to the expected one."""
