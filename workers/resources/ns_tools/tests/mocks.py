"""Less time for the library of the delegated verifier: hostile formulas take all that they are given."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from workers.resources.ns_tools.worker import NsTools


@asynccontextmanager
async def mocked(worker: NsTools) -> AsyncIterator[None]:
    worker.options.verifiers["math_with_judge"].options["library_verifier_timeout_seconds"] = 2.0
    yield
