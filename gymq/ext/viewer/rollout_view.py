"""One rollout as the viewer shows it: stored, or still in flight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gymq.data.rows import PARAMS, attempt_index
from gymq.ext.http.errors import not_found
from gymq.ext.rollout_files.shown import answer_of, fields_beside_prompt, retry_words, row_of, shown_calls
from gymq.ext.viewer.in_flight import RecordedEffect
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import (
    JUDGE_INPUT_TOKENS,
    JUDGE_OUTPUT_TOKENS,
    Failure,
    Generated,
    Outcome,
    Task,
    ToolResult,
    Unresolved,
    Verified,
    VerifiedRollout,
)
from gymq.protocol.tokens import TOKEN_FIELDS
from gymq.runs.outcome_fields import expected_of, objects, own_fields, params_of, prompt_of

MOST_TOKENS = 20_000  # of one item that are sent to a page

View = dict[str, Any]


def stored_view(outcome: Outcome) -> View:
    """Return a stored rollout without its tokens, which are only counted."""
    verdict = outcome.verdict if isinstance(outcome, VerifiedRollout) else {}
    row = row_of(outcome)
    expected = expected_of(row, verdict)
    view: View = {
        "state": outcome.__struct_config__.tag.partition(".")[0],  # type: ignore[union-attr]
        "run": outcome.run,
        "task_index": outcome.task_index,
        "rollout_index": outcome.rollout_index,
        "num_rollouts": outcome.num_rollouts,
        "agent": outcome.agent,
        "worker": outcome.worker,
        "attempt": attempt_index(outcome.row, outcome.attempt),
        "started_at": outcome.started_at,
        "duration_s": outcome.duration_s,
        "policy_versions": outcome.policy_versions,
        "timings": [[str(timing.stage), timing.started_s, timing.duration_s] for timing in outcome.timings],
        **_asked(outcome.row, verdict),
        "expected": expected,
        # What a verifier goes by where no field is named for it.
        "fields": {} if expected else fields_beside_prompt(own_fields(row), params_of(row, verdict)),
        "answer": dict(zip(("name", "value"), answer_of(outcome), strict=True)),
    }
    if isinstance(outcome, VerifiedRollout | Unresolved):
        response = outcome.response
        view["items"] = [without_tokens(item) for item in objects(response.get("output"))]
        view["usage"] = response.get("usage")
        view["incomplete"] = response.get("incomplete_details")
        view["model"] = response.get("model")
    if isinstance(outcome, VerifiedRollout):
        view["reward"] = outcome.reward
        view["verdict"] = {name: value for name, value in verdict.items() if name != PARAMS}
        calls = shown_calls(view["verdict"])
        view["judge_calls"] = [call for found in calls.values() for call in found]
        view["judge_fields"] = [*calls, JUDGE_INPUT_TOKENS, JUDGE_OUTPUT_TOKENS]
    if isinstance(outcome, Failure | Unresolved):
        view["failure"] = {
            "class": str(outcome.failure_class),
            "stage": str(outcome.stage),
            "message": outcome.message,
            "retry": retry_words(outcome),
        }
    return view


def unfinished_view(run: str, task_index: int, rollout_index: int, task: Task | None, attempt: int) -> View:
    """Return the known parts of a rollout that has no outcome.

    Args:
        task: its task, if an agent has it in flight.
    """
    view: View = {
        "state": "running" if task is not None else "waiting",
        "run": run,
        "task_index": task_index,
        "rollout_index": rollout_index,
        "attempt": attempt_of(task, attempt),
        "items": [],
    }
    if task is not None:
        view |= {"agent": task.agent, "num_rollouts": task.num_rollouts, **_asked(task.row, {})}
    return view


def attempt_of(task: Task | None, attempt: int) -> int:
    """Return the number of earlier attempts at a rollout of which one of its task is in progress."""
    return attempt if task is None else attempt_index(task.row, attempt)


def done_items(done: Iterable[RecordedEffect]) -> list[View]:
    """Return the effects of a rollout in flight as items of its output, each with its time."""
    items: list[View] = []
    for effect in done:
        reply, fields = effect.reply, {"at": effect.stored_at}
        if isinstance(reply, Generated):
            items += [without_tokens(item) | fields for item in objects(reply.response.get("output"))]
        elif isinstance(reply, ToolResult):
            # The journal knows a call as "tool <number> <name>".
            name = effect.key.split(" ")[2] if effect.key.count(" ") >= 2 else ""
            output = {"type": "function_call_output", "name": name, "output": reply.output}
            items.append(output | fields)
        elif isinstance(reply, Verified):
            items.append({"type": "verdict", "reward": reply.reward, "verdict": reply.verdict} | fields)
    return items


def without_tokens(item: Mapping[str, Any]) -> View:
    """Return an item whose token arrays are replaced by their lengths in a field `tokens`."""
    kept = {name: value for name, value in item.items() if name not in TOKEN_FIELDS}
    counts = {name: len(item[name]) for name in TOKEN_FIELDS if item.get(name) is not None}
    return kept | {"tokens": counts} if counts else kept


def tokens_of_item(outcome: Outcome, position: int) -> View:
    """Return the generated tokens of one item, with their log probs; at most `MOST_TOKENS`.

    Raises:
        StatusError: 404; the item has no tokens.
    """
    items = [] if isinstance(outcome, Failure) else objects(outcome.response.get("output"))
    item = items[position] if 0 <= position < len(items) else {}
    ids, log_probs = item.get("generation_token_ids"), item.get("generation_log_probs")
    if ids is None:
        raise not_found(f"item {position} of the output has no tokens")
    return {
        "num_tokens": len(ids),
        "ids": list(ids[:MOST_TOKENS]),
        "log_probs": None if log_probs is None else list(log_probs[:MOST_TOKENS]),
    }


def _asked(row: bytes, verdict: Mapping[str, Any]) -> View:
    """Return the prompt and the other fields of a row.

    A failed row was never checked and may hold anything.
    """
    try:
        fields = msgspec.json.decode(row)
    except UNDECODABLE:
        return {"row": row.decode("utf-8", "backslashreplace"), "input": []}
    if not isinstance(fields, dict):
        return {"row": fields, "input": []}
    params = params_of(fields, verdict)
    return {
        "row": fields_beside_prompt({name: value for name, value in fields.items() if name != PARAMS}, params),
        "input": prompt_of(params),
        "instructions": params.get("instructions"),
        "tools": objects(params.get("tools")),
        "params": {name: value for name, value in params.items() if name not in ("input", "instructions", "tools")},
    }
