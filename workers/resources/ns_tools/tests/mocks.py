"""Less processor time for the library of the delegated verifier. However busy the machine is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest import mock

from gymq.workers.resources.math_with_judge import equivalence
from gymq.workers.resources.ns_tools.worker import NsTools


@asynccontextmanager
async def mocked(worker: NsTools) -> AsyncIterator[None]:
    worker.options.verifiers["math_with_judge"].options["library_verifier_timeout_seconds"] = 1.0
    with mock.patch.object(equivalence, "LONGEST_WAIT", 200.0):
        yield
