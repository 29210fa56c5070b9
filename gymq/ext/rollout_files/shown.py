"""What a person looks for in an outcome: what was asked, what was answered, and what its judges said."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gymq.data.rows import PARAMS, attempt_index
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import JUDGE_CALLS, Failure, Outcome, Unresolved, VerifiedRollout
from gymq.protocol.tokens import TOKEN_FIELDS, to_json
from gymq.responses import last_assistant_text
from gymq.runs.outcome_fields import objects, prompt_of

MAX_LEVELS = 8  # of a structure in which a judge's calls are looked for

_EXTRACTED = re.compile(r"(extracted|parsed|predicted)_")


@dataclass(frozen=True)
class JudgeCall:
    """A call of a judge, as a verdict holds it.

    Attributes:
        path: where it is in the verdict, such as `judge_evaluations[0]`.
        facts: its other fields, such as the label that was read.
        prompt: the items that the judge was given.
        output: the items of its response.
    """

    path: str
    facts: dict[str, Any]
    prompt: list[dict[str, Any]]
    output: list[dict[str, Any]]


def row_of(outcome: Outcome) -> dict[str, Any]:
    """Return the row of an outcome; a failed row was never checked, and is empty if it is not an object."""
    try:
        decoded = msgspec.json.decode(outcome.row)
    except UNDECODABLE:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def fields_beside_prompt(fields: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a row without the one that is its prompt, which readers see as the input of the request."""
    return {name: value for name, value in fields.items() if value != params.get("input")}


def question_of(params: Mapping[str, Any]) -> str:
    """Return the text that the policy was asked first: that of the last message before its turn."""
    asked = [item for item in prompt_of(params) if item.get("role") in (None, "user")]
    return readable_content(asked[-1].get("content")) if asked else ""


def answer_of(outcome: Outcome) -> tuple[str, Any]:
    """Return the name of the field with the answer and the answer; without such a field the name is empty.

    Then the answer is the text of the last reply.
    """
    if isinstance(outcome, VerifiedRollout):
        for name, value in outcome.verdict.items():
            if _EXTRACTED.match(name) and value is not None:
                return name, value
    return "", "" if isinstance(outcome, Failure) else last_assistant_text(outcome.response)


def judge_call(path: str, value: Mapping[str, Any]) -> JudgeCall | None:
    """Return the call of a judge that a structure is, as `gymq.judge` and NeMo Gym store them; None if it is none."""
    request, response = value.get("request", value.get(PARAMS)), value.get("response")
    if isinstance(request, dict) and isinstance(response, dict) and "input" in request and "output" in response:
        facts = {key: entry for key, entry in value.items() if entry is not request and entry is not response}
        return JudgeCall(path, facts, prompt_of(request), objects(response.get("output")))
    return None


def judge_calls(path: str, value: Any, levels: int = MAX_LEVELS) -> Iterator[JudgeCall]:
    """Yield the calls of judges in a structure."""
    if isinstance(value, dict):
        call = judge_call(path, value)
        if call is not None:
            yield call
            return
    if levels and isinstance(value, dict | list):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        for name, entry in inside:
            where = f"{path}[{name}]" if isinstance(value, list) else f"{path}.{name}" if path else str(name)
            yield from judge_calls(where, entry, levels - 1)


def shown_calls(verdict: Mapping[str, Any]) -> dict[str, list[JudgeCall]]:
    """Return the calls to show, by the field of the verdict that holds them.

    Those that were recorded stand for all others: a verifier that stores its calls too stores the same ones.
    """
    found = {name: list(judge_calls(name, value)) for name, value in verdict.items()}
    found = {name: calls for name, calls in found.items() if calls}
    if JUDGE_CALLS in found:
        return {name: calls if name == JUDGE_CALLS else [] for name, calls in found.items()}
    return found


def output_tokens(outcome: Outcome) -> int | None:
    """Return the number of output tokens of a rollout, as the model counted them."""
    usage = None if isinstance(outcome, Failure) else outcome.response.get("usage")
    count = usage.get("output_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) else None


def num_turns(response: Mapping[str, Any]) -> int:
    """Return how often the model replied, as far as its output shows: what its tools answer ends a turn."""
    turns, is_open = 0, False
    for item in objects(response.get("output")):
        is_of_model = not str(item.get("type")).endswith("_output") and item.get("role") in (None, "assistant")
        turns += is_of_model and not is_open
        # The engine's tokens are on the last item of its reply.
        is_open = is_of_model and not any(item.get(name) is not None for name in TOKEN_FIELDS)
    return turns


def value_text(value: Any) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else to_json(value).decode()


def retry_words(outcome: Failure | Unresolved) -> str:
    """Return whether a failure may be retried, in words."""
    if outcome.curable:
        return "once its cause is removed: the same `gymq collect` retries it"
    return "may help" if outcome.retryable else "cannot help"


def exact_record(outcome: Outcome) -> bytes:
    """Return the whole outcome as JSON, with the row as an object and token arrays as lists.

    Its `attempt` is the number of all earlier attempts, as `_ng_attempt_index` in the files.
    """
    fields: dict[str, Any] = {"type": outcome.__struct_config__.tag, **msgspec.structs.asdict(outcome)}
    fields["attempt"] = attempt_index(outcome.row, outcome.attempt)
    try:
        msgspec.json.decode(outcome.row)
        fields["row"] = msgspec.Raw(outcome.row)
    except UNDECODABLE:
        fields["row"] = outcome.row.decode("utf-8", "backslashreplace")
    return to_json(fields)


def readable_content(content: Any) -> str:
    """Return the text of a message's content: its texts and refusals, and the rest as JSON."""
    if isinstance(content, str):
        return content
    return "\n".join(_part(part) for part in objects(content))


def _part(part: Mapping[str, Any]) -> str:
    for field in ("text", "refusal"):
        if isinstance(part.get(field), str):
            return str(part[field])
    return to_json(part).decode()
