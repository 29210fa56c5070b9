"""mini_swe_agent: a fault in a repository, repaired by shell commands in a container. Hidden tests decide.

The agent drives the container and ends with a patch. This is the other side: the patch is applied to a fresh container
and the tests are run by SWE-bench's harness, whose report is the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic
from gymq.workers.resources.mini_swe_agent.harness import EvaluationTimedOut, Harness
from gymq.workers.resources.mini_swe_agent.patch import find_patch
from gymq.workers.resources.mini_swe_agent.report import reward_of

import gymq


class InstanceRow(gymq.Row):
    """A row of SWE-bench or SWE-Gym. Its other members go to the harness as they are."""

    instance_id: str


class MiniSwe(gymq.Resources[InstanceRow]):
    """Reward 1 if SWE-bench's tests find the instance resolved by the patch that the episode ends with."""

    class Options(gymq.WorkerOptions):
        eval_timeout: pydantic.PositiveInt = 1800  # seconds for the tests of one instance
        concurrency: pydantic.PositiveInt = 16  # evaluations at a time, in one process

    reward_range = (0.0, 1.0)
    deterministic = False
    needs = frozenset({"sandbox"})

    async def start(self) -> None:
        self._harness = Harness(self.options.eval_timeout, self.options.concurrency)

    async def verify(self, request: gymq.VerifyRequest[InstanceRow]) -> gymq.Verdict:
        row = request.row
        try:
            report = await self.evaluate(row.model_dump(exclude={"responses_create_params"}), request.response)
        except EvaluationTimedOut:
            report, timed_out = None, True
        else:
            timed_out = False
        return gymq.Verdict(
            reward_of(report, row.instance_id), instance_id=row.instance_id, metadata=report, timed_out=timed_out
        )

    async def evaluate(self, instance: dict[str, Any], response: Mapping[str, Any]) -> dict[str, Any] | None:
        """The harness's report on an episode. See `Harness.evaluate`."""
        return await self._harness.evaluate(instance, find_patch(response))
