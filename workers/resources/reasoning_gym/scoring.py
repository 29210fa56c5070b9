"""Scores from the library reasoning-gym, in processes that can be killed.

Some of its scorers hand the answer to Python's `eval` or to sympy's parser, which calls it. A model could run code
there, or read the expected answer. So `eval` becomes `literal_eval` for them, and sympy gets nothing but arithmetic.
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
from types import MethodType
from typing import Any

from gymq.workers.resources.reasoning_gym import hardening

EVALUATED = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
PARSED = frozenset(
    {"countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration"}
)
TRIGONOMETRIC = ("sin", "cos", "tan", "cot", "sec", "csc")
FORMULA_NAMES = frozenset({"exp", "log", "ln", "sqrt", "abs", "Abs", "erf", "Integral", "pi", *TRIGONOMETRIC}) | {
    f"{before}{name}{after}" for name in TRIGONOMETRIC for before, after in (("a", ""), ("", "h"), ("a", "h"))
}
NAME = re.compile(r"[^\W\d]\w*")
NUMBER = re.compile(r"(?<!\w)(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
BOARDS = frozenset({"arc_agi", "rearc"})  # compared with `metadata.output` as tuples, which JSON writes as lists
NOT_A_FORMULA = "("  # what every parser refuses, so that the scorer gives what it gives for unreadable answers


def prepare() -> None:
    """What a process does before its first score."""
    logging.disable(logging.CRITICAL)
    with contextlib.suppress(ImportError):  # the first score will say so
        import reasoning_gym  # noqa: F401


def score(task: str, answer: str, entry: dict[str, Any], *, hardened: bool = True) -> float:
    """Return the library's score of an answer. An exception in a scorer is 0, as in the library's own evaluation.

    Args:
        task: name of the library's data set.
        entry: the task's `question`, `answer` and `metadata`, as JSON has them.
        hardened: whether answers that say nothing are kept from the scorers that reward them.
    """
    if hardened and hardening.is_no_number(answer, entry["answer"]):
        return 0.0
    if task in PARSED and not is_formula(answer):
        answer = NOT_A_FORMULA
    try:
        if hardened and task in hardening.SCORERS:
            return hardening.SCORERS[task](answer, entry["answer"])
        if task in BOARDS:
            entry = {**entry, "metadata": {**entry["metadata"], "output": _tuples(entry["metadata"]["output"])}}
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            given = float(_scorer(task)(answer, entry))
    except Exception:
        return 0.0
    # Shares that are summed up may come out a little above 1.
    return min(given, 1.0)


def is_formula(answer: str) -> bool:
    """Whether a text has only numbers, operators, variables of one letter and elementary functions."""
    rest = NUMBER.sub(" ", answer)
    names = NAME.findall(rest)
    known = all(len(name) == 1 or name in FORMULA_NAMES for name in names)
    return known and not re.search(r"[^\s+*/%^(),!-]", NAME.sub(" ", rest))


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
