"""Less time for the library: hostile formulas take all that they are given."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from workers.resources.math_with_judge.worker import Math


@asynccontextmanager
async def mocked(worker: Math) -> AsyncIterator[None]:
    worker.options.library_verifier_timeout_seconds = 2.0
    yield
