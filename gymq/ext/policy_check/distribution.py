"""The distribution that a token is sampled from: the model's own one, after penalties, temperature and truncation."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymq.errors import GymqError


class NotComparable(GymqError, ValueError):
    """The distribution cannot be computed exactly from what is known; one sentence."""


@dataclass(frozen=True)
class NextToken:
    """What is known of the model's own distribution of one token.

    Attributes:
        ids: token ids, an array.
        values: their logits or log probs, an array of the same length.
        are_logits: whether `values` are logits.
        is_whole: whether the ids are the whole vocabulary; otherwise they are the likeliest tokens and the sampled one.
    """

    ids: Any
    values: Any
    are_logits: bool
    is_whole: bool

    def place(self, token: int) -> int:
        """Return where a token's id is in `ids`."""
        return int((self.ids == token).argmax())


def log_probs(step: NextToken, sampling: Mapping[str, Any], prompt: Sequence[int], generated: Sequence[int]) -> Any:
    """Return the log probs of the ids of a step, an array, in the order in which vLLM processes logits.

    Args:
        sampling: all settings of `gymq.protocol.sampling.NEUTRAL`.
        prompt: ids before the reply.
        generated: ids of the reply before this token.

    Raises:
        NotComparable: the settings need more than is known of the model's distribution.
    """
    np = importlib.import_module("numpy")
    top_k = min(sampling["top_k"], len(step.ids)) if sampling["top_k"] > 0 else 0
    _check(step, sampling, top_k)
    values = _penalized(np, step, sampling, prompt, generated) / sampling["temperature"]
    if sampling["min_p"]:
        values = np.where(values < values.max() + math.log(sampling["min_p"]), -np.inf, values)
    if top_k:
        values = np.where(values < np.partition(values, -top_k)[-top_k], -np.inf, values)
    elif not step.is_whole:
        return values
    values = _normalized(np, values)
    if sampling["top_p"] < 1.0:
        order = np.argsort(-values, kind="stable")
        ranked = np.exp(values[order])
        values[order[np.cumsum(ranked) - ranked >= sampling["top_p"]]] = -np.inf
        values = _normalized(np, values)
    return values


def _check(step: NextToken, sampling: Mapping[str, Any], top_k: int) -> None:
    if sampling["repetition_penalty"] != 1.0 and not step.are_logits:
        raise NotComparable("repetition_penalty acts on logits: give --reference CHECKPOINT")
    if step.is_whole:
        return
    shown = len(step.ids) - 1  # besides the sampled token
    if sampling["presence_penalty"] or sampling["frequency_penalty"]:
        raise NotComparable(f"the engine shows {shown} tokens of its vocabulary: give --reference CHECKPOINT")
    is_cut = sampling["min_p"] > 0.0 or sampling["top_p"] < 1.0
    if not 0 < top_k <= shown and (sampling["temperature"] != 1.0 or is_cut):
        raise NotComparable(f"the engine shows {shown} tokens of its vocabulary: give --reference CHECKPOINT")


def _penalized(
    np: Any, step: NextToken, sampling: Mapping[str, Any], prompt: Sequence[int], generated: Sequence[int]
) -> Any:
    values = np.asarray(step.values, dtype=np.float64)
    repetition = sampling["repetition_penalty"]
    if repetition != 1.0:
        seen = np.isin(step.ids, [*prompt, *generated])
        values = np.where(seen, np.where(values > 0, values / repetition, values * repetition), values)
    if sampling["presence_penalty"] or sampling["frequency_penalty"]:
        values = values.copy()
        for token, count in Counter(generated).items():
            values[step.place(token)] -= sampling["presence_penalty"] + count * sampling["frequency_penalty"]
    return values


def _normalized(np: Any, values: Any) -> Any:
    largest = values.max()
    return values - largest - np.log(np.exp(values - largest).sum())
