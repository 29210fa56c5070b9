"""Model: what answers a Responses request, as an author writes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gymq.authoring import Worker, not_implemented


@dataclass(frozen=True)
class ModelRequest:
    """One model call."""

    params: dict[str, Any]  # parameters of an OpenAI Responses request, `input` always a list of items
    session: str  # calls with the same value share a prefix
    rollout: str  # for logs
    timeout_s: float  # seconds left for the answer


class Model(Worker):
    """Answers Responses requests."""

    async def respond(self, request: ModelRequest) -> dict[str, Any]:
        """A Responses object; token ids and log probs as lists or packed arrays on the last output item.

        Raises:
            RolloutError: with the class `MODEL_FAILED` and whether another try may help.
        """
        not_implemented(self, "respond")
