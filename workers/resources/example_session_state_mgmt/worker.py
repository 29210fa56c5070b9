"""example_session_state_mgmt: a counter that tools change and the verifier reads. The smallest environment with state.

Each session has a counter of its own. The reward looks at the counter alone, not at what the model says or claims to
have called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pydantic

import gymq


class Seeding(gymq.Row):
    initial_count: int
    # A session can be seeded with the count alone: nothing is asked of a model yet.
    responses_create_params: dict[str, Any] = pydantic.Field(default_factory=lambda: {"input": []})


class Expectation(gymq.Row):
    expected_count: int


@dataclass
class Counter:
    count: int


class SessionCounter(gymq.Resources[Expectation, Counter]):
    """Reward 1 if the session's counter holds `expected_count` in the end."""

    reward_range = (0.0, 1.0)

    async def open(self, row: Seeding) -> Counter:
        return Counter(row.initial_count)

    async def reseed(self, state: Counter, row: Seeding) -> Counter:
        """Keep the value of a counter that exists."""
        return state

    async def open_unseeded(self) -> Counter:
        return Counter(0)

    @gymq.tool
    async def increment_counter(self, state: Counter, count: int) -> dict[str, bool]:
        """Add to the counter. A negative number subtracts."""
        state.count += count
        return {"success": True}

    @gymq.tool
    async def get_counter_value(self, state: Counter) -> dict[str, int]:
        """Read the counter."""
        return {"count": state.count}

    async def verify(self, request: gymq.VerifyRequest[Expectation, Counter]) -> gymq.Verdict:
        state = request.state
        # There is no state if the session was never seeded and no tool was called.
        return gymq.Verdict(float(state is not None and state.count == request.row.expected_count))
