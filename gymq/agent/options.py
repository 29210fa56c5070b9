"""The options of agents."""

from __future__ import annotations

from typing import ClassVar

import pydantic

from gymq.authoring import Reference, WorkerOptions


class AgentOptions(WorkerOptions):
    """Options that every agent has."""

    without_meaning: ClassVar = WorkerOptions.without_meaning | {"judge_model_server"}

    resources_server: Reference | None = None
    model_server: Reference | None = None
    skip_verification: bool = False
    skip_verification_reward: pydantic.FiniteFloat = 0.0
    model_timeout_s: pydantic.PositiveFloat = 1200.0  # for one model call, retries included
    tool_timeout_s: pydantic.PositiveFloat = 600.0
    verify_timeout_s: pydantic.PositiveFloat = 600.0
