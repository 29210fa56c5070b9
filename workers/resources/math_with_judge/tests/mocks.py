"""Less processor time for the library: hostile formulas take all that they are given. However busy the machine is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest import mock

from gymq.workers.resources.math_with_judge import equivalence
from gymq.workers.resources.math_with_judge.worker import Math


@asynccontextmanager
async def mocked(worker: Math) -> AsyncIterator[None]:
    worker.options.library_verifier_timeout_seconds = 1.0
    with mock.patch.object(equivalence, "LONGEST_WAIT", 200.0):
        yield
