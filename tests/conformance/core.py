"""Run one case of a core suite and compare what it gives."""

import importlib
import importlib.util
from types import ModuleType
from typing import Any

from .cases import CoreCase, ExpectedError
from .comparison import CORE, Mismatch, differences, mention_differences
from .plain import plain
from .refused import Refused

SUITES = f"{__package__}.suites"


def find_suite(name: str) -> ModuleType | None:
    """The module of a core suite, or None if there is none."""
    module = f"{SUITES}.{name}"
    return importlib.import_module(module) if importlib.util.find_spec(module) else None


async def check_core(suite: ModuleType, case: CoreCase) -> None:
    """Run `case`.

    Raises:
        Mismatch: the result differs, or one of result and refusal came where the other is due.
    """
    wanted = case.expected_error
    try:
        answer = await suite.run(case.input)
    except Refused as refusal:
        found = _refusal_differences(wanted, refusal)
    else:
        found = _answer_differences(suite, case.expect, answer, wanted)
    if found:
        raise Mismatch(found)


def _refusal_differences(wanted: ExpectedError | None, refusal: Refused) -> list[str]:
    if wanted is None:
        return [f"an answer is expected, but it was refused: {refusal.message}"]
    found = mention_differences(wanted.mention, refusal.message)
    if wanted.status is not None and refusal.status != wanted.status:
        found.append(f"error: expected the status {wanted.status}, got {refusal.status}")
    return found


def _answer_differences(suite: ModuleType, expect: Any, answer: Any, wanted: ExpectedError | None) -> list[str]:
    if wanted is not None:
        return [f"a refusal ({wanted.kind}) is expected, but it was answered: {answer!r}"]
    normalise = getattr(suite, "normalise", lambda value: value)
    return differences(normalise(expect), normalise(plain(answer)), CORE)
