"""The answer to `/run`: a stored outcome as the row a trainer reads, or the error it is."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from gymq import responses
from gymq.bridge.failures import BridgeError, of_outcome
from gymq.bridge.settings import Untrainable
from gymq.bridge.trainable import Trainable, one_chain
from gymq.jsonl import parse_object
from gymq.messages import Failure, FailureClass, Outcome, Rollout
from gymq.rows import FAILURE_CLASS
from gymq.tokens import encode_json

_encode = msgspec.json.Encoder(enc_hook=encode_json).encode

NO_TOKEN_IDS = "no_token_ids"
"""Return the failure class of a rollout that cannot be trained on."""

# Where these do not fit the reward, trainers raise or drop the result.
_FROM_VERIFIER = (FAILURE_CLASS, "reward_components")


def answer(outcome: Outcome, on_untrainable: Untrainable) -> bytes:
    """The JSON text of a result. The same outcome always gives the same bytes.

    Args:
        on_untrainable: what to do with a rollout that cannot be trained on. `error` raises; `empty` gives a masked
            result with an empty output, also for a failed rollout; `allow` gives the result as it is.

    Raises:
        BridgeError: there is no result.
    """
    try:
        if not isinstance(outcome, Rollout):
            raise of_outcome(outcome)
        return _result(outcome, on_untrainable)
    except BridgeError as error:
        if on_untrainable != "empty" or error.status == 409:
            raise
        return _empty_result(outcome, error)


def _result(outcome: Rollout, on_untrainable: Untrainable) -> bytes:
    verdict = outcome.verdict
    _check_verdict(outcome, verdict)
    trainable = one_chain(outcome.response["output"])
    if not trainable.num_calls:
        _check_untrainable(outcome, on_untrainable)
    members = _of_row(outcome)
    members["response"] = {**outcome.response, "output": trainable.output}
    members.update(verdict)
    members["reward"] = outcome.reward
    return _encode(_labelled(members, outcome, trainable, masked=_is_masked(members)))


def _empty_result(outcome: Outcome, error: BridgeError) -> bytes:
    """A sample that trainers must not learn from. The mask says so; its reward says nothing."""
    members = _of_row(outcome)
    response = {} if isinstance(outcome, Failure) else outcome.response
    members["response"] = {**response, "object": "response", "output": []}
    members["reward"] = 0.0
    labelled = _labelled(members, outcome, Trainable([], 0, 0), masked=True)
    labelled["gymq"]["failure"] = {"class": error.failure_class, "message": error.message}
    return _encode(labelled)


def _of_row(outcome: Outcome) -> dict[str, Any]:
    """The members of the row, without those that say how an earlier result of it was."""
    return {name: value for name, value in parse_object(outcome.row).items() if name not in _FROM_VERIFIER}


def _check_verdict(outcome: Rollout, verdict: dict[str, Any]) -> None:
    if verdict.get(FAILURE_CLASS):
        raise _failed(outcome, str(verdict[FAILURE_CLASS]), "the verifier answered with a failure in place of a reward")
    components = verdict.get("reward_components")
    if not components:
        return
    if not isinstance(components, dict) or not all(map(_is_number, components.values())):
        raise _failed(outcome, str(FailureClass.VERIFIER_FAILED), "reward_components is no object of finite numbers")
    total = math.fsum(components.values())
    if not math.isclose(total, outcome.reward, rel_tol=1e-5, abs_tol=1e-6):
        text = f"reward_components add up to {total}, but the reward is {outcome.reward}"
        raise _failed(outcome, str(FailureClass.VERIFIER_FAILED), text)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _check_untrainable(outcome: Rollout, on_untrainable: Untrainable) -> None:
    """Refuse a rollout without tokens, unless the caller does not train."""
    response = outcome.response
    incomplete = (response.get("incomplete_details") or {}).get("reason") == "max_output_tokens"
    if incomplete and not _says_anything(response["output"]):
        text = "the prompt does not fit into the model's context"
        raise _failed(outcome, "prompt_too_long", text, status=422, stage="model")
    if on_untrainable != "allow":
        text = (
            "no item of the response has token ids: let the model worker return them, "
            "or ask with on_untrainable `allow` if nobody trains on this"
        )
        raise _failed(outcome, NO_TOKEN_IDS, text, status=422, stage="model")


def _says_anything(output: list[dict[str, Any]]) -> bool:
    return any(item.get("type") != "message" for item in output) or bool(responses.assistant_text({"output": output}))


def _is_masked(members: dict[str, Any]) -> bool:
    config = _plain(members.get("instance_config"))
    nested = config.get("mask_sample") if isinstance(config, dict) else None
    return bool(_plain(members.get("mask_sample"))) or bool(nested)


def _labelled(members: dict[str, Any], outcome: Outcome, trainable: Trainable, *, masked: bool) -> dict[str, Any]:
    """Add the mask where each trainer looks for it, and what we know of the rollout, below one key."""
    members["mask_sample"] = masked  # always: a key that comes and goes shifts the means of those who average it
    if masked:
        config = _plain(members.get("instance_config"))
        members["instance_config"] = {**(config if isinstance(config, dict) else {}), "mask_sample": True}
    members["gymq"] = {
        "run": outcome.run,
        "task_index": outcome.task_index,
        "rollout_index": outcome.rollout_index,
        "attempt": outcome.attempt,
        "duration_s": outcome.duration_s,
        "policy_versions": outcome.policy_versions,
        "dropped_calls": trainable.dropped_calls,
    }
    return members


def _plain(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value


def _failed(
    outcome: Rollout, failure_class: str, message: str, *, status: int = 500, stage: str = "verify"
) -> BridgeError:
    task_id = f"{outcome.run}/{outcome.task_index}/{outcome.rollout_index}"
    return BridgeError(status, failure_class, message, stage=stage, task_id=task_id, attempts=outcome.attempt + 1)
