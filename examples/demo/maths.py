"""Problems with a mathematical answer for the demo. Every answer is computed, none is written down by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

from rows import Row, make_row, say

ROWS_OF_EACH_KIND = 6


class Problem(NamedTuple):
    question: str
    answer: str
    wrong_answer: str


def rows(seed: random.Random) -> Iterator[Row]:
    """A few rows of each kind of problem."""
    for kind in KINDS:
        for _ in range(ROWS_OF_EACH_KIND):
            question, answer, wrong_answer = kind(seed)
            yield make_row(
                "math_with_judge_simple_agent",
                f"{question} Put the answer into \\boxed{{}}.",
                solution=[[say(f"The answer is \\boxed{{{answer}}}.")]],
                mistake=[[say(f"The answer is \\boxed{{{wrong_answer}}}.")]],
                question=question,
                expected_answer=answer,
            )


def product(seed: random.Random) -> Problem:
    a, b = seed.randint(12, 99), seed.randint(12, 99)
    return Problem(f"What is {a} times {b}?", str(a * b), str(a * b + seed.choice([-10, 10, 100])))


def division_with_remainder(seed: random.Random) -> Problem:
    divisor, quotient = seed.randint(6, 19), seed.randint(11, 60)
    remainder = seed.randint(1, divisor - 1)
    number = divisor * quotient + remainder
    question = f"What is the remainder when {number} is divided by {divisor}?"
    return Problem(question, str(remainder), str(remainder - 1))


def sum_of_fractions(seed: random.Random) -> Problem:
    a, b = _fraction(seed), _fraction(seed)
    wrong = Fraction(a.numerator + b.numerator, a.denominator + b.denominator)
    return Problem(f"What is {_inline(a)} + {_inline(b)}, in lowest terms?", _latex(a + b), _latex(wrong))


def percentage(seed: random.Random) -> Problem:
    percent, whole = seed.choice([5, 12, 15, 20, 25, 35, 40, 60, 75]), seed.randrange(40, 800, 20)
    answer = Fraction(percent * whole, 100)
    return Problem(f"How much is {percent} per cent of {whole}?", _latex(answer), _latex(answer + 1))


def linear_equation(seed: random.Random) -> Problem:
    a, x, b = seed.randint(2, 12), seed.choice([*range(-9, 0), *range(1, 10)]), seed.randint(1, 20)
    return Problem(f"Solve {a}x + {b} = {a * x + b} for x.", str(x), str(-x))


def quadratic_equation(seed: random.Random) -> Problem:
    low, high = sorted(seed.sample([*range(-9, 0), *range(1, 10)], 2))
    question = f"Give the set of all solutions of x^2{_term(-(low + high), 'x')}{_term(low * high, '')} = 0."
    return Problem(question, f"\\{{{low}, {high}\\}}", f"\\{{{low}, {high + 1}\\}}")


def two_equations(seed: random.Random) -> Problem:
    x, y = seed.randint(1, 30), seed.randint(1, 30)
    question = f"Two numbers add up to {x + y}, and the first minus the second is {x - y}. What is the first number?"
    return Problem(question, str(x), str(x + 1))


def derivative(seed: random.Random) -> Problem:
    a, n, b = seed.randint(2, 9), seed.randint(3, 6), seed.randint(2, 9)
    question = f"What is the derivative of {a}x^{n} + {b}x with respect to x?"
    return Problem(question, f"{a * n}x^{{{n - 1}}} + {b}", f"{a * n}x^{{{n}}} + {b}")


def integral(seed: random.Random) -> Problem:
    n, upper = seed.randint(1, 4), seed.randint(1, 4)
    answer = Fraction(upper ** (n + 1), n + 1)
    power = "x" if n == 1 else f"x^{n}"
    return Problem(f"What is the integral of {power} from 0 to {upper}?", _latex(answer), _latex(answer + 1))


def hypotenuse(seed: random.Random) -> Problem:
    a, b, c = seed.choice([(3, 4, 5), (5, 12, 13), (8, 15, 17), (7, 24, 25), (20, 21, 29)])
    factor = seed.randint(1, 6)
    a, b, c = a * factor, b * factor, c * factor
    question = f"A right-angled triangle has legs of length {a} and {b}. How long is its hypotenuse?"
    return Problem(question, str(c), str(a + b))


def arithmetic_series(seed: random.Random) -> Problem:
    last = seed.randint(12, 120)
    answer = last * (last + 1) // 2
    return Problem(f"What is the sum of the whole numbers from 1 to {last}?", str(answer), str(answer - last))


def combinations(seed: random.Random) -> Problem:
    n, k = seed.randint(5, 12), seed.randint(2, 4)
    question = f"In how many ways can {k} people be chosen from {n}?"
    return Problem(question, str(math.comb(n, k)), str(math.perm(n, k)))


KINDS: list[Callable[[random.Random], Problem]] = [
    product,
    division_with_remainder,
    sum_of_fractions,
    percentage,
    linear_equation,
    quadratic_equation,
    two_equations,
    derivative,
    integral,
    hypotenuse,
    arithmetic_series,
    combinations,
]


def _fraction(seed: random.Random) -> Fraction:
    denominator = seed.randint(3, 9)
    return Fraction(seed.randint(1, denominator - 1), denominator)


def _inline(number: Fraction) -> str:
    return f"{number.numerator}/{number.denominator}"


def _latex(number: Fraction) -> str:
    if number.denominator == 1:
        return str(number.numerator)
    return f"\\frac{{{number.numerator}}}{{{number.denominator}}}"


def _term(factor: int, variable: str) -> str:
    """A summand with its sign; nothing if it is 0."""
    if factor == 0:
        return ""
    size = variable if variable and abs(factor) == 1 else f"{abs(factor)}{variable}"
    return f" {'+' if factor > 0 else '-'} {size}"
