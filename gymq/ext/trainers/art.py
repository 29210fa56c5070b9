"""Groups for OpenPipe ART, as what its `TrajectoryGroup` validates.

The form is that of ART 0.5.23, https://github.com/OpenPipe/ART, `src/art/trajectories`: a trajectory has the exchanges
of its model calls. Each has the exact token ids of its prompt and reply, so ART renders no chat template; the messages,
which only order the exchanges, have no text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymq.data.records import Record
from gymq.trainer.examples import called
from gymq.trainer.groups import Group, Row, Sample

_ASKED = {"role": "user", "content": ""}
_REPLY = {"role": "assistant", "content": ""}
_ANY_TIME = "1970-01-01T00:00:00Z"  # exchanges have times, by which nothing is decided


def trajectory_group(group: Group, model: str) -> Row:
    """Return a group for `art.TrajectoryGroup.model_validate`.

    A failure is one of its exceptions. A sample that the verifier masks keeps its reward, which counts in the baseline
    of its group, and has no sampled token.

    Args:
        model: as the model that is trained is called, `model.get_inference_name()` in ART.

    Raises:
        NotTrainable: a sample has no tokens.
    """
    row = called("the row", group.example)
    failures = [
        {"type": failed.failure_class, "message": f"{row}: {failed.message}", "traceback": ""}
        for failed in group.failures
    ]
    trajectories = [_trajectory(sample, model) for sample in group.samples]
    return {"trajectories": trajectories, "exceptions": failures, "metadata": {"task_index": group.task_index}}


def _trajectory(sample: Sample, model: str) -> Row:
    return {
        "exchanges": {"chat_completions": [one for record in sample.records() for one in _exchanges(record, model)]},
        "reward": sample.reward,
        "metrics": sample.record().reward_components,
        "metadata": {"rollout_index": sample.rollout_index, "policy_versions": sample.policy_versions},
    }


def _exchanges(record: Record, model: str) -> Iterator[Row]:
    if record.mask:
        yield _exchange(0, record.token_ids, [], [], "stop", model)
        return
    for at, span in enumerate(record.generations):
        prompt, sampled = record.token_ids[: span.start], record.token_ids[span.start : span.end]
        log_probs = record.log_probs[span.start : span.end]
        is_cut = at == record.num_turns - 1 and record.finish is not None
        yield _exchange(at, prompt, sampled, log_probs, "length" if is_cut else "stop", model)


def _exchange(
    num_before: int, prompt: list[int], sampled: list[int], log_probs: list[float], finish: str, model: str
) -> Row:
    entries = [
        {"token": f"token_id:{token}", "logprob": log_prob, "top_logprobs": []}
        for token, log_prob in zip(sampled, log_probs, strict=True)
    ]
    choice: dict[str, Any] = {"index": 0, "message": _REPLY, "finish_reason": finish, "logprobs": {"content": entries}}
    choice |= {"prompt_token_ids": prompt, "token_ids": sampled}
    response = {"id": "gymq", "object": "chat.completion", "created": 0, "model": model, "choices": [choice]}
    return {
        "request": {"model": model, "messages": [_ASKED, *[_REPLY, _ASKED] * num_before]},
        "response": response,
        "start_time": _ANY_TIME,
        "end_time": _ANY_TIME,
    }
