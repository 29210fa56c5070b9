"""How an engine samples: what it takes where a request leaves a setting out, and what its log probs are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gymq.protocol.sampling import NEUTRAL

FROM_CHECKPOINT: Mapping[str, float] = {
    name: NEUTRAL[name] for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
}
"""Settings that an engine may take from the checkpoint where a request has none, with neutral values."""


@dataclass(frozen=True)
class Sampler:
    """How an engine samples.

    Attributes:
        log_probs: `PROCESSED`, `RAW`, or None: the engine does not show it.
        sent: settings to send where a request has none.
        implied: settings that apply where a request has none.
    """

    log_probs: str | None
    sent: Mapping[str, Any]
    implied: Mapping[str, Any]
