"""Scores from the library reasoning-gym, in processes that can be killed.

Some of its scorers hand the answer, or a text of the row, to Python's `eval` or to sympy's parser, which calls it. A
model or the author of a row could run code there, or read the expected answer. So `eval` becomes `literal_eval` for
them, sympy gets nothing but arithmetic, and a row whose text is not a formula is refused.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import logging
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from types import MethodType
from typing import Any

_NO_NUMBER = re.compile(r"(?<![^\W_])(?:nan|inf|infinity)(?=[ij]?(?![^\W_]))", re.IGNORECASE)

ABSOLUTE_TOLERANCE = 1e-4  # the library's own for probabilities
RELATIVE_TOLERANCE = 0.01  # so that 0 is not close to a small probability


def halting_score(answer: str, expected: str) -> float:
    """Return 1 for the expected word, True or False, in any case. The library takes any text for True."""
    return float(answer.strip().rstrip(".").casefold() == expected.strip().casefold())


def probability_score(answer: str, expected: str) -> float:
    """Return 1 for the expected probability. The library also pays for each leading digit, so that 0 always wins.

    Raises:
        ValueError, ZeroDivisionError: the answer is not a number.
    """
    given, wanted = (float(Fraction(text.replace(",", ""))) for text in (answer, expected))
    return float(abs(given - wanted) <= min(ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE * abs(wanted)))


SCORERS: dict[str, Callable[[str, str], float]] = {
    "coin_flip": probability_score,
    "game_of_life_halting": halting_score,
}
"""Tasks whose scorer is replaced; each gets the answer and the expected one."""

OTHER_NUMBERS = {"countdown": 0.05, "puzzle24": 0.01}
"""Tasks that ask for an expression of given numbers, and their scores for one of others or of another value.

The library overlooks numbers such as `24e0`; those of `puzzle24` it only counts, and 24.5 is 24 there.
"""
ARITHMETIC = re.compile(r"(?!.*(?:\*\s*\*|/\s*/))[0-9\s+*/()-]*", re.DOTALL)

EVALUATED = frozenset({"binary_matrix", "n_queens", "number_sorting", "spiral_matrix", "string_insertion"})
PARSED = frozenset(
    {"countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration"}
)
TRIGONOMETRIC = ("sin", "cos", "tan", "cot", "sec", "csc")
FORMULA_NAMES = frozenset({"exp", "log", "ln", "sqrt", "abs", "Abs", "erf", "pi", *TRIGONOMETRIC}) | {
    f"{before}{name}{after}" for name in TRIGONOMETRIC for before, after in (("a", ""), ("", "h"), ("a", "h"))
}
NAME = re.compile(r"[^\W\d]\w*")
NUMBER = re.compile(r"(?<!\w)(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
BITWISE = re.compile(r"(?:0x[0-9a-fA-F]++|[0-9]++|[\s()+*<>&|^~-])*+")
BOARDS = frozenset({"arc_agi", "rearc"})  # compared with `metadata.output` as tuples, which JSON writes as lists
NOT_A_FORMULA = "("  # what every parser refuses, so that the scorer gives what it gives for unreadable answers


def prepare() -> None:
    """What a process does before its first score."""
    logging.disable(logging.CRITICAL)
    with contextlib.suppress(ImportError):  # the first score will say so
        import reasoning_gym  # noqa: F401


def check_row(task: str, answer: str | None, metadata: dict[str, Any]) -> None:
    """Check the texts of a row that a scorer evaluates.

    Raises:
        ValueError: such a text is more than a formula.
    """
    match task:
        case "bitwise_arithmetic":
            name, text = "metadata.problem", metadata.get("problem")
            is_plain = not isinstance(text, str) or BITWISE.fullmatch(text) is not None
        case "simple_integration" | "intermediate_integration":
            name, text = "metadata.integrand", metadata.get("integrand")
            is_plain = not isinstance(text, str) or is_formula(text, integrals=False)
        case "polynomial_multiplication":
            name, text = "answer", answer
            is_plain = text is None or is_formula(text, integrals=False)
        case _:
            return
    if not is_plain:
        raise ValueError(f"{name}: {text!r:.100} is not a formula, and the scorer of {task} evaluates it")


def score(task: str, answer: str, entry: dict[str, Any]) -> float:
    """Return the library's score of an answer, but for answers that say nothing and that its scorers reward.

    Args:
        task: name of the library's data set.
        entry: the task's `question`, `answer` and `metadata`, as JSON has them.
    """
    if is_no_number(answer, entry["answer"]):
        return 0.0
    if task in PARSED and not is_formula(answer, integrals=answer == entry["answer"]):
        answer = NOT_A_FORMULA
    try:
        if task in SCORERS:
            return SCORERS[task](answer, entry["answer"])
        others = task in OTHER_NUMBERS and not makes_target(answer, entry["metadata"])
    except Exception:
        return 0.0
    return min(published_score(task, answer, entry), OTHER_NUMBERS[task] if others else 1.0)


def published_score(task: str, answer: str, entry: dict[str, Any]) -> float:
    """Return the library's score of an answer. An exception in a scorer is 0, as in the library's own evaluation."""
    if task in PARSED and not is_formula(answer, integrals=True):
        answer = NOT_A_FORMULA
    try:
        if task in BOARDS:
            entry = {**entry, "metadata": {**entry["metadata"], "output": _tuples(entry["metadata"]["output"])}}
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            given = float(_scorer(task)(answer, entry))
    except Exception:
        return 0.0
    # Shares that are summed up may come out a little above 1.
    return min(given, 1.0)


def is_formula(answer: str, *, integrals: bool) -> bool:
    """Return whether a text has only numbers, operators, variables of one letter and elementary functions.

    Args:
        integrals: whether it may have integrals too. Then the question itself answers a question for an integral.
    """
    rest = NUMBER.sub(" ", answer)
    names = NAME.findall(rest)
    known = all(len(name) == 1 or name in FORMULA_NAMES or (integrals and name == "Integral") for name in names)
    return known and not re.search(r"[^\s+*/%^(),!-]", NAME.sub(" ", rest))


def makes_target(answer: str, metadata: dict[str, Any]) -> bool:
    """Return whether an answer combines the numbers, each once, by + - * / and brackets, and has the wanted value."""
    from sympy import parse_expr

    if ARITHMETIC.fullmatch(answer) is None:
        return False
    used = sorted(map(int, re.findall("[0-9]+", answer)))
    return used == sorted(metadata["numbers"]) and bool(parse_expr(answer) == metadata.get("target", 24))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@functools.cache
def _scorer(task: str) -> Callable[[str, dict[str, Any]], float]:
    from reasoning_gym import get_score_answer_fn

    scorer: MethodType = get_score_answer_fn(task)
    if task in EVALUATED:
        module = sys.modules[scorer.__self__.__class__.__module__]
        vars(module)["eval"] = ast.literal_eval
    return scorer


def is_no_number(answer: str, expected: str | None) -> bool:
    """Return whether an answer names NaN or an infinity where the expected one does not.

    Scorers compare distances, and a comparison with NaN can come out in favour of the answer.
    """
    return _NO_NUMBER.search(answer) is not None and _NO_NUMBER.search(expected or "") is None
