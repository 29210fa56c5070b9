"""Results for HTTP clients and trainers, of stored outcomes. `gymq.data.run_files` makes the lines of a run's files."""

from __future__ import annotations

import math
from array import array
from typing import Any, Literal

import msgspec

from gymq import responses
from gymq.data.failure_status import StatusError, status_error
from gymq.data.jsonl import parse_object
from gymq.data.rows import FAILURE_CLASS, with_result
from gymq.data.trainable import Trainable, one_chain
from gymq.protocol.messages import Failure, FailureClass, Outcome, VerifiedRollout
from gymq.protocol.sampling import mismatch
from gymq.protocol.tokens import SAMPLING_FIELD, TOKEN_FIELDS, ContinuedPrompt, to_json
from gymq.responses.items import is_truncated

Untrainable = Literal["error", "empty", "allow"]

NO_TOKEN_IDS = "no_token_ids"
"""The failure class of a rollout without tokens to train on."""

NOT_TRAINABLE = "not_trainable"
"""The failure class of a rollout whose tokens would be trained on with the wrong log probs."""

# If these do not fit the reward, trainers raise or drop the result.
_FROM_VERIFIER = (FAILURE_CLASS, "reward_components")


def encode_result(outcome: Outcome, on_untrainable: Untrainable) -> bytes:
    """Return the JSON text of a result; the same outcome always gives the same bytes.

    Args:
        on_untrainable: for a rollout that cannot be trained on, `error` raises; `empty` returns a masked result with an
            empty output, also for a failed rollout; `allow` returns the result unchanged.

    Raises:
        StatusError: the outcome has no result.
    """
    return to_json(_fields(outcome, on_untrainable))


def result_fields(outcome: Outcome, on_untrainable: Untrainable) -> dict[str, Any]:
    """Return what a reader of the JSON text of `encode_result` gets, but with packed tokens in the response.

    Raises:
        StatusError: the outcome has no result.
    """
    fields = _fields(outcome, on_untrainable)
    response = fields["response"]
    output = response.get("output") if isinstance(response, dict) else None
    items, packed = _without_packed(output if isinstance(output, list) else [])
    if packed:
        fields["response"] = {**response, "output": items}
    result: dict[str, Any] = msgspec.json.decode(to_json(fields))
    for position, name, values in packed:
        result["response"]["output"][position][name] = values
    return result


def with_lists(result: dict[str, Any]) -> dict[str, Any]:
    """Return `result_fields` with lists in place of packed tokens: what a reader of its JSON text gets.

    The prompt of each call is a list of its own then, so this takes memory for the sum of their lengths.
    """
    items, packed = _without_packed(result["response"]["output"])
    for position, name, values in packed:
        items[position][name] = values.tolist()
    return {**result, "response": {**result["response"], "output": items}}


def _without_packed(output: list[Any]) -> tuple[list[Any], list[tuple[int, str, array[Any] | ContinuedPrompt]]]:
    """Return items with None in place of packed tokens, and the position, the name and the values of each of those."""
    items, packed = list(output), []
    for position, item in enumerate(output):
        if not isinstance(item, dict):
            continue
        found = [name for name in TOKEN_FIELDS if _is_packed(item.get(name))]
        packed += [(position, name, item[name]) for name in found]
        items[position] = {**item, **dict.fromkeys(found)}
    return items, packed


def _is_packed(values: Any) -> bool:
    """Return whether values are packed and finite; JSON has no other numbers."""
    if isinstance(values, array):
        return values.typecode == "i" or math.isfinite(sum(values))
    return isinstance(values, ContinuedPrompt)


def _fields(outcome: Outcome, on_untrainable: Untrainable) -> dict[str, Any]:
    try:
        if not isinstance(outcome, VerifiedRollout):
            raise status_error(outcome)
        return _result(outcome, on_untrainable)
    except StatusError as error:
        if on_untrainable != "empty" or error.status == 409:
            raise
        return _empty_result(outcome, error)


def _result(outcome: VerifiedRollout, on_untrainable: Untrainable) -> dict[str, Any]:
    check_verdict(outcome)
    trainable = one_chain(outcome.response["output"])
    if not trainable.num_calls:
        _check_untrainable(outcome, on_untrainable)
    if on_untrainable != "allow":
        _check_log_probs(outcome)
    fields = with_result(_of_row(outcome), {**outcome.response, "output": trainable.output}, outcome)
    return _labelled(fields, outcome, trainable, masked=_is_masked(fields))


def _empty_result(outcome: Outcome, error: StatusError) -> dict[str, Any]:
    """Return a masked sample, which is not trained on; its reward has no meaning."""
    fields = _of_row(outcome)
    response = {} if isinstance(outcome, Failure) else outcome.response
    fields["response"] = {**response, "object": "response", "output": []}
    fields["reward"] = 0.0
    labelled = _labelled(fields, outcome, Trainable([], 0, 0), masked=True)
    labelled["gymq"]["failure"] = {"class": error.failure_class, "message": error.message}
    return labelled


def _of_row(outcome: Outcome) -> dict[str, Any]:
    """Return the fields of the row, without the verdict of an earlier result."""
    return {name: value for name, value in parse_object(outcome.row).items() if name not in _FROM_VERIFIER}


def check_verdict(outcome: VerifiedRollout) -> None:
    """Check that a verdict has a reward.

    Raises:
        StatusError: it is a failure, or its parts do not add up.
    """
    verdict = outcome.verdict
    if verdict.get(FAILURE_CLASS):
        raise _failed(outcome, str(verdict[FAILURE_CLASS]), "the verifier answered with a failure in place of a reward")
    components = verdict.get("reward_components")
    if not components:
        return
    if not isinstance(components, dict) or not all(map(_is_number, components.values())):
        raise _failed(
            outcome, str(FailureClass.VERIFIER_FAILED), "reward_components must be an object of finite numbers"
        )
    total = math.fsum(components.values())
    if not math.isclose(total, outcome.reward, rel_tol=1e-5, abs_tol=1e-6):
        text = f"reward_components add up to {total}, but the reward is {outcome.reward}"
        raise _failed(outcome, str(FailureClass.VERIFIER_FAILED), text)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _check_untrainable(outcome: VerifiedRollout, on_untrainable: Untrainable) -> None:
    """Refuse a rollout without tokens, unless the caller does not train."""
    response = outcome.response
    if is_truncated(response) and not _says_anything(response["output"]):
        text = "the prompt does not fit into the model's context"
        raise _failed(outcome, "prompt_too_long", text, status=422, stage="model")
    if on_untrainable != "allow":
        text = (
            "no item of the response has token ids: let the model worker return them, "
            "or ask with on_untrainable `allow` if the result is not for training"
        )
        raise _failed(outcome, NO_TOKEN_IDS, text, status=422, stage="model")


def _check_log_probs(outcome: VerifiedRollout) -> None:
    """Refuse a rollout whose log probs are not those of the distribution that was sampled."""
    for item in outcome.response["output"]:
        ignored = mismatch(item.get(SAMPLING_FIELD) or {})
        if ignored is not None:
            text = (
                f"sampled with {ignored}, but the log probs are those of the model at temperature 1: start the engine "
                "with --logprobs-mode processed_logprobs (vLLM), or sample without these settings"
            )
            raise _failed(outcome, NOT_TRAINABLE, text, status=422, stage="model")


def _says_anything(output: list[dict[str, Any]]) -> bool:
    return any(item.get("type") != "message" for item in output) or bool(responses.assistant_text({"output": output}))


def is_masked(outcome: VerifiedRollout) -> bool:
    """Return whether a rollout is not to be trained on, by its verdict or its row.

    Raises:
        JsonlError: its row is not a JSON object.
    """
    return _is_masked({**parse_object(outcome.row), **outcome.verdict})


def _is_masked(fields: dict[str, Any]) -> bool:
    config = _plain(fields.get("instance_config"))
    nested = config.get("mask_sample") if isinstance(config, dict) else None
    return bool(_plain(fields.get("mask_sample"))) or bool(nested)


def _labelled(fields: dict[str, Any], outcome: Outcome, trainable: Trainable, *, masked: bool) -> dict[str, Any]:
    """Add the mask in the places where trainers read it, and the field `gymq` with facts about the rollout."""
    fields["mask_sample"] = masked  # always set, since trainers average it over the rows that have it
    if masked:
        config = _plain(fields.get("instance_config"))
        fields["instance_config"] = {**(config if isinstance(config, dict) else {}), "mask_sample": True}
    fields["gymq"] = {
        "run": outcome.run,
        "task_index": outcome.task_index,
        "rollout_index": outcome.rollout_index,
        "attempt": outcome.attempt,
        "duration_s": outcome.duration_s,
        "policy_versions": outcome.policy_versions,
        "dropped_calls": trainable.dropped_calls,
    }
    if trainable.branches:
        fields["gymq"]["branches"] = trainable.branches
    return fields


def _plain(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value


def _failed(
    outcome: VerifiedRollout, failure_class: str, message: str, *, status: int = 500, stage: str = "verify"
) -> StatusError:
    task_id = str(outcome.rollout_id)
    return StatusError(status, failure_class, message, stage=stage, task_id=task_id, attempts=outcome.attempt + 1)
