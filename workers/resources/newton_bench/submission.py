"""A submitted law: finding it, checking its form, and measuring how far it is from the true one."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gymq.workers.resources.newton_bench.equivalence import LawRule
from gymq.workers.resources.newton_bench.laws import Module

from gymq.errors import GymqError
from gymq.sandbox import MIB, Limits, Program, Sandbox, SandboxOptions

NUM_POINTS = 5000
NUM_DIGITS = 12  # of an error, after the point

_OPEN, _CLOSE = "<final_law>", "</final_law>"
_PROGRAM = (Path(__file__).parent / "law_program.py").read_bytes()


class NotEvaluated(GymqError):
    """The law used up what a law may use, so that nothing can be said of it."""


class LawFailed(GymqError):
    """The law's code does not work; the text gives the reason."""


def find_law(output: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the content of the last closed `<final_law>` of the last message that has one."""
    for item in reversed(output):
        if item.get("type") != "message":
            continue
        content = item.get("content")
        text = content if isinstance(content, str) else "".join(part.get("text") or "" for part in content or [])
        start = text.rfind(_OPEN)
        end = text.find(_CLOSE, start)
        if start >= 0 and end >= 0:
            return text[start + len(_OPEN) : end].strip()
    return None


def problem_of_form(law: str, module: Module) -> str | None:
    """Return the error in the function's signature, if there is one."""
    signature = f"def discovered_law({', '.join(module.parameters)}):"
    names = r",\s*".join(map(re.escape, module.parameters))
    if not re.search(rf"def\s+discovered_law\({names}\):", law):
        return f"the law has to be a function {signature}"
    if not re.search(r"\breturn[ \t(]+\S", law):
        return "the law returns nothing"
    return None


async def predictions(
    sandbox: Sandbox,
    options: SandboxOptions,
    law: str,
    points: list[dict[str, float]],
    timeout_s: float,
    rule: LawRule,
) -> list[float]:
    """Return the law's values at the points, computed in a sandbox.

    Raises:
        LawFailed: its code raises, or returns something that is not a number.
        NotEvaluated: it needs too much time, memory or output.
        ComponentFailed: nothing ran.
    """
    files = {
        "law_program.py": _PROGRAM,
        "law.py": law.encode(errors="replace"),
        "points.json": json.dumps([list(point.values()) for point in points]).encode(),
    }
    limits = options.limits(Limits(time_s=timeout_s, output_bytes=4 * MIB))
    finished = await sandbox.run(Program((sandbox.python, "-I", "law_program.py"), files=files), limits)
    if finished.limit is not None:
        raise NotEvaluated(f"the law went over the limit: {finished.limit}")
    try:
        values = rule.values(json.loads(finished.stdout))
    except (ValueError, TypeError, OverflowError, RecursionError):
        values = []
    if len(values) != len(points):
        said = finished.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise LawFailed(f"the law cannot be computed: {said or 'it gave no numbers'}")
    return values


def rmsle(predicted: list[float], true: list[float], rule: LawRule) -> float | None:
    """Return the root mean square of the differences of ln(1 + |value|).

    None if a value is infinite, or the law gives no number where it has to. Rounded, so that the order of
    operations makes no difference.
    """
    pairs = rule.pairs(predicted, true)
    if not pairs or any(math.isinf(value) for pair in pairs for value in pair):
        return None
    squares = math.fsum((math.log1p(abs(a)) - math.log1p(abs(b))) ** 2 for a, b in pairs)
    return round(math.sqrt(squares / len(pairs)), NUM_DIGITS)


def reward_of(error: float | None, equivalent: bool | None, rule: LawRule) -> float:
    """From the numeric error, which is finite, and the judge's verdict; either may be missing."""
    if error is None:
        return {True: rule.form_without_numbers, False: -0.3, None: 0.0}[equivalent]
    return 0.3 * (1.0 if equivalent else -1.0) + 0.7 * (1.0 - 2.0 * error / (error + 3.0))
