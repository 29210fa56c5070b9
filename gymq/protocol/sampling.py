"""What a reply was sampled with: the settings of a model call that decide about the distribution of its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NEUTRAL: Mapping[str, float] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Settings with the values at which tokens are sampled from the model's own distribution."""

LOG_PROBS = "log_probs"
"""Key for the distribution that the log probs are of: `processed` or `raw`; absent if the engine does not say."""
PROCESSED = "processed"
"""The tokens were sampled from it: after temperature, penalties and truncation."""
RAW = "raw"
"""The model's own distribution, at a temperature of 1."""

_RECORDED = (*NEUTRAL, "seed", "max_tokens", "min_tokens", "stop")


def recorded(settings: Mapping[str, Any], log_probs: str | None = None) -> dict[str, Any]:
    """Return the settings of a call as they are stored: the temperature, and those that are not neutral.

    Args:
        settings: fields of the request as the engine got it.
        log_probs: `PROCESSED`, `RAW` or None.
    """
    sampling = {
        name: settings[name]
        for name in _RECORDED
        if settings.get(name) is not None and (name == "temperature" or settings[name] != NEUTRAL.get(name))
    }
    if log_probs is not None:
        sampling[LOG_PROBS] = log_probs
    return sampling


def mismatch(sampling: Mapping[str, Any]) -> str | None:
    """Return the settings that the log probs of a call do not reflect, for messages; None if they reflect all."""
    if sampling.get(LOG_PROBS) != RAW:
        return None
    ignored = [
        f"{name} {sampling[name]:g}" for name, neutral in NEUTRAL.items() if sampling.get(name, neutral) != neutral
    ]
    return ", ".join(ignored) or None
