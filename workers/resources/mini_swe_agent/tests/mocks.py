"""An evaluation that finds the fault of the first example row repaired by one patch and by no other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gymq.workers.resources.mini_swe_agent.worker import MiniSwe, find_patch


@asynccontextmanager
async def mocked(worker: MiniSwe) -> AsyncIterator[None]:
    async def evaluate(instance: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
        is_resolved = "+area = 3.14 * r**2" in find_patch(response)
        tests = {"FAIL_TO_PASS": {"success": instance["FAIL_TO_PASS"], "failure": []}}
        return {"eval_report": {instance["instance_id"]: {"resolved": is_resolved, "tests_status": tests}}}

    worker.evaluate = evaluate  # type: ignore[method-assign, assignment]
    yield
