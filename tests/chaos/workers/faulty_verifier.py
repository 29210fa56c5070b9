"""Verifiers that go wrong in the way the row asks for: one on the event loop, one in a process."""

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import gymq


class Row(gymq.Row):
    verifier_fault: str | None = None


def raises(error: BaseException) -> Callable[[], Any]:
    def action() -> Any:
        raise error

    return action


FAULTS: dict[str, Callable[[], Any]] = {
    "raises": raises(ValueError("out of order")),
    "asserts": raises(AssertionError()),
    "time limit of its own": raises(TimeoutError()),
    "recursion": raises(RecursionError("too deep")),
    "memory": raises(MemoryError()),
    "exits": lambda: sys.exit(3),
    "none": lambda: None,
    "text": lambda: "0.0",
    "list": lambda: [0.0],
    "dictionary": lambda: {"reward": 0.0},
    "nan": lambda: gymq.Verdict(float("nan")),
    "infinite": lambda: gymq.Verdict(float("inf")),
    "reward is null": lambda: gymq.Verdict(None),  # type: ignore[arg-type]
    "reward is text": lambda: gymq.Verdict("zero"),  # type: ignore[arg-type]
    "object inside": lambda: gymq.Verdict(0.0, note=object()),
    "integer too large": lambda: gymq.Verdict(0.0, note=10**30),
}
ON_LOOP: dict[str, Callable[[], Any]] = FAULTS | {
    "cancels itself": raises(asyncio.CancelledError()),
    "judge": raises(gymq.JudgeFailed("the judge is out")),
    "component": raises(gymq.ComponentFailed("the database is out")),
}
IN_PROCESS: dict[str, Callable[[], Any]] = FAULTS | {
    "dies": lambda: os._exit(1),
    "crashes": lambda: ctypes.string_at(0),
    "computes too long": lambda: time.sleep(3600),
    "cannot be pickled": lambda: gymq.Verdict(0.0, note=(one for one in "")),
}


def verdict(faults: dict[str, Callable[[], Any]], request: gymq.VerifyRequest[Row]) -> Any:
    fault = request.row.verifier_fault
    return gymq.Verdict(float(request.reply_text == "fine")) if fault is None else faults[fault]()


class OnLoop(gymq.Resources[Row]):
    """Pays for "fine"."""

    max_concurrency = 100_000

    async def verify(self, request: gymq.VerifyRequest[Row]) -> Any:
        if request.row.verifier_fault == "hangs":
            await asyncio.sleep(3600)
        return verdict(ON_LOOP, request)


class InProcess(gymq.Resources[Row]):
    """Pays for "fine"."""

    max_concurrency = 100_000
    verify_timeout_s = 0.5

    def verify_in_process(self, request: gymq.VerifyRequest[Row]) -> Any:
        return verdict(IN_PROCESS, request)
