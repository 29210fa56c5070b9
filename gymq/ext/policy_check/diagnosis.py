"""Why log probs differ: the distributions that explain them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymq.ext.policy_check.battery import CheckedCall
from gymq.ext.policy_check.distribution import NextToken, NotComparable, log_probs
from gymq.protocol.sampling import NEUTRAL

_TEMPERATURES = tuple(number / 10 for number in range(2, 21))


@dataclass(frozen=True)
class Compared:
    """A call, the model's own distributions at its tokens, and the log probs that it should have."""

    call: CheckedCall
    steps: Sequence[NextToken]
    expected: Sequence[float]

    def differences(self) -> list[float]:
        return _differences(self.call.log_probs, self.expected)


def cause(compared: Sequence[Compared], asked: Mapping[str, Any], defaults: Mapping[str, Any], tolerance: float) -> str:
    """Return what explains log probs that are not those expected, and what cures it.

    Args:
        asked: all settings of the calls.
        defaults: settings of the checkpoint.
    """
    if _explains(compared, NEUTRAL, tolerance):
        return "raw log probs, at temperature 1: start the engine with --logprobs-mode processed_logprobs"
    if any(_is_shifted(compared, by, tolerance) for by in (1, -1)):
        return "the log probs stand at the tokens beside theirs"
    of_checkpoint = {**asked, **{name: defaults[name] for name in NEUTRAL if defaults.get(name) is not None}}
    if of_checkpoint != asked and _explains(compared, of_checkpoint, tolerance):
        return "sampled with the checkpoint's generation_config.json: start the engine with --generation-config vllm"
    for temperature in _TEMPERATURES:
        if _explains(compared, {**asked, "temperature": temperature}, tolerance):
            text = f"sampled at temperature {temperature:g}, as with a generation_config.json of the checkpoint"
            return f"{text}: start the engine with --generation-config vllm"
    expected = [value for one in compared for value in one.expected]
    # Few sampled tokens are as unlikely as that.
    if sum(value < -12.0 for value in expected) > len(expected) / 4:
        return "the ids are not those that were sampled, or are of another model"
    return "the engine has other weights, or computes in another precision: then give --tolerance"


def _explains(compared: Sequence[Compared], sampling: Mapping[str, Any], tolerance: float) -> bool:
    """Return whether other settings make the log probs that there are."""
    num_compared = 0
    try:
        for one in compared:
            call = one.call
            for number, (step, token) in enumerate(zip(one.steps, call.generated, strict=True)):
                of_step = log_probs(step, sampling, call.prompt, call.generated[:number])
                found = float(of_step[step.place(token)])
                if _differences([call.log_probs[number]], [found])[0] > tolerance:
                    return False
                num_compared += 1
                if num_compared == 24:
                    return True
    except NotComparable:
        return False
    return True


def _is_shifted(compared: Sequence[Compared], by: int, tolerance: float) -> bool:
    pairs = [
        (one.call.log_probs[place + by], one.expected[place])
        for one in compared
        for place in range(len(one.expected))
        if 0 <= place + by < len(one.call.log_probs)
    ]
    close = sum(difference <= tolerance for difference in _differences(*map(list, zip(*pairs, strict=True))))
    return len(pairs) > 1 and close > 0.9 * len(pairs)


def _differences(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the absolute differences; those of two infinite values are 0."""
    return [0.0 if one == other else abs(one - other) for one, other in zip(ones, others, strict=True)]
