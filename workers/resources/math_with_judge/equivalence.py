"""Whether a reply gives the expected mathematical answer, decided by math-verify.

math-verify and sympy, which it stands on, can compute for ever or fill the memory, and they take a second to import.
They are therefore only ever imported in processes, which are killed at a time limit.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from gymq.authoring import check_installed
from gymq.processes import ComputeLimits

# An expansion can need tens of gigabytes before its time is over. Beyond this it fails, and only it.
MAX_MEMORY_BYTES = 4 * 1024**3

# Of the processor time that a check has left, for one step of it: the rest is for the others.
STEP_SHARE = 0.8

# Sides of an equation further apart than this share of the larger are not roundings of one another.
LARGEST_ROUNDING = 0.01

# On a busy machine a check takes longer than its processor time. Only past this limit is it stopped.
LONGEST_WAIT = 20.0  # times the processor time it is given


class Equivalence(NamedTuple):
    """The library's decision."""

    reward: float  # 0 or 1
    extracted_answer: str | None  # what it read in the reply; None if nothing
    cut_off: bool = False  # a limit ended it before it decided: no reward, but no "no" either


Rule = Callable[[str, str], Equivalence]  # of an expected answer and a reply, in a process

CUT_OFF = Equivalence(0.0, None, cut_off=True)

_rung: list[float] = []  # processor time at which steps of the present check were cut off, in seconds


def limits(cpu_s: float, max_concurrency: int) -> ComputeLimits:
    """Return the limits of `check`.

    Args:
        cpu_s: seconds of processor time for one check.
        max_concurrency: checks at a time; there is never more than one for each core.

    Raises:
        OptionsError: math-verify is not installed.
    """
    check_installed("resources", "math_verify")
    max_workers = min(max_concurrency, os.cpu_count() or 1)
    return ComputeLimits(cpu_s, LONGEST_WAIT * cpu_s, MAX_MEMORY_BYTES, prepare, max_workers)


def prepare() -> None:
    """What a process does before its first check."""
    logging.disable(logging.CRITICAL)
    _let_alarms_count_processor_time()
    with contextlib.suppress(ImportError):  # the first check will say so
        _library()


def _let_alarms_count_processor_time() -> None:
    """Ring the library's alarms after processor time, and only when little of the check's own is left.

    The library gives each of its steps some seconds, by `signal.alarm`, and takes a step that is cut off for a "no". On
    a busy machine they pass by too soon: processor time too is spent faster there.
    """

    def alarm(seconds: int) -> None:
        signal.setitimer(signal.ITIMER_PROF, max(seconds, STEP_SHARE * _cpu_left_s()) if seconds else 0)

    def ring(number: int, frame: Any) -> None:
        _rung.append(time.process_time())
        handler = signal.getsignal(signal.SIGALRM)
        if callable(handler):
            handler(number, frame)

    signal.signal(signal.SIGPROF, ring)
    signal.alarm = alarm  # type: ignore[assignment] # this process does nothing but checks


def _cpu_left_s() -> float:
    """Return the processor time that this process may still use; 0 without a limit."""
    limit = resource.getrlimit(resource.RLIMIT_CPU)[0]
    used = resource.getrusage(resource.RUSAGE_SELF)
    return 0.0 if limit == resource.RLIM_INFINITY else limit - used.ru_utime - used.ru_stime


def check(rule: Rule, expected_answer: str, reply: str) -> Equivalence:
    """Return a decision, without any limit of ours. An error in the library counts as not equivalent.

    A step that the library's own alarm ended is taken for a "no" by the library, and for cut off here.
    """
    _, timeout_exception = _library()
    _rung.clear()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            found = rule(expected_answer, reply)
    except (Exception, timeout_exception):
        return CUT_OFF if _rung else Equivalence(0.0, None)
    return CUT_OFF if _rung and not found.reward else found


def by_library(expected_answer: str, reply: str) -> Equivalence:
    """Decide as NeMo Gym does: by math-verify's metric, on the whole reply."""
    metric, _ = _library()
    reward, readings = metric([boxed(expected_answer)], [reply])
    expected, extracted = readings or ([], [])
    answer = next((reading for reading in extracted if reading in expected), extracted[0] if extracted else None)
    return Equivalence(float(reward), answer)


def boxed(expected_answer: str) -> str:
    """Return the expected answer as math-verify reads it best: in a box, without delimiters of inline formulas."""
    answer = expected_answer.strip()
    if answer.startswith("\\(") and answer.endswith("\\)"):
        answer = answer[2:-2].strip()
    if len(answer) > 1 and answer.startswith("$") and answer.endswith("$"):
        answer = answer[1:-1].strip()
    return f"\\boxed{{{answer}}}"


def is_contradiction(readings: Iterable[Any]) -> bool:
    """Return whether what the library reads in a reply says that different numbers are equal."""
    return any(_differ(numbers) for read in readings for numbers in _equated_numbers(read))


def _equated_numbers(read: Any) -> Iterator[list[float]]:
    """Yield the numbers of each chain of equations, such as 3 = x = 7."""
    from sympy import And, Eq

    chain: list[float] = []
    last_side = None
    for equation in read._unsorted_args if isinstance(read, And) else [read]:
        if not isinstance(equation, Eq):
            continue
        if equation.lhs != last_side:
            yield chain
            chain = []
        chain += [float(side) for side in equation.args if side.is_number and side.is_real]
        last_side = equation.rhs
    yield chain


def _differ(numbers: list[float]) -> bool:
    return bool(numbers) and max(numbers) - min(numbers) > LARGEST_ROUNDING * max(map(abs, numbers))


def targets() -> tuple[Any, ...]:
    """Return the kinds of answers that the library looks for in a reply."""
    from math_verify.parser import ExprExtractionConfig, LatexExtractionConfig

    return ExprExtractionConfig(), LatexExtractionConfig()


@functools.cache
def _library() -> tuple[Any, type[BaseException]]:
    """math-verify's metric, and the exception of its own time limits, which is no `Exception`."""
    from math_verify.errors import TimeoutException
    from math_verify.metric import math_metric
    from math_verify.parser import LatexExtractionConfig

    metric = math_metric(gold_extraction_target=(LatexExtractionConfig(),), pred_extraction_target=targets())
    return metric, TimeoutException
