"""One rollout as a person reads it: what was asked, said, called and answered, the row, the verdict and its judges."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from gymq.data.rows import AGENT_REF
from gymq.protocol.messages import Failure, Outcome, Unresolved, VerifiedRollout
from gymq.protocol.tokens import TOKEN_FIELDS, encode_json
from gymq.render import printable, shown_seconds, shown_time

_INDENT = "  "
_PARAMS = "responses_create_params"
_MAX_FIELD_CHARS = 2000  # of a field of the row
_LEVELS = 8  # of a structure that are shown apart
_MAX_LINE_CHARS = 200  # of a structure that is shown in one line

_encode = msgspec.json.Encoder(enc_hook=encode_json).encode


def print_transcript(outcome: Outcome, console: Console) -> None:
    """Print a rollout whole: only long fields of the row are cut short, and token ids and log probs counted."""
    console.print(_facts(_head(outcome)))
    row = _row(outcome.row)
    verdict = outcome.verdict if isinstance(outcome, VerifiedRollout) else {}
    # Of a program that has prompts of its own, the verdict says what was asked.
    params = verdict.get(_PARAMS, row.get(_PARAMS))
    params = params if isinstance(params, dict) else {}
    instructions = params.get("instructions")
    if isinstance(instructions, str):
        _print_section("instructions", instructions, "", console)
    tools = [str(tool.get("name") or tool.get("type")) for tool in _objects(params.get("tools"))]
    if tools:
        _print_section("tools offered", ", ".join(tools), "", console)
    given = params.get("input")
    prompt = [{"role": "user", "content": given}] if isinstance(given, str) else _objects(given)
    for item in prompt:
        _print_item(item, console)
    if isinstance(outcome, VerifiedRollout | Unresolved):
        console.print(Rule("response", style="bold", characters="═"))
        for item in _objects(outcome.response.get("output")):
            _print_item(item, console)
        cut = outcome.response.get("incomplete_details")
        if cut:
            _print_section("incomplete", _json(cut), "yellow", console)
    if fields := list(_fields(row)):
        console.print(Rule("row", style="bold", characters="═"))
        console.print(_facts(iter(fields)))
    console.print(Rule("verdict", style="bold", characters="═"))
    console.print(_facts(_verdict(outcome)))
    for name, value in verdict.items():
        if _is_long(value) and name != _PARAMS:
            _print_structure(name, value, console)


def tokens_of(outcome: Outcome) -> int | None:
    """Return the number of output tokens of a rollout, as the model counted them."""
    if not isinstance(outcome, VerifiedRollout | Unresolved):
        return None
    usage = outcome.response.get("usage")
    count = usage.get("output_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) else None


def why_no_reward(outcome: Outcome) -> tuple[str, str, str]:
    """Return failure class, stage and message of a rollout without a reward."""
    if isinstance(outcome, Failure | Unresolved):
        return str(outcome.failure_class), str(outcome.stage), outcome.message
    return "cancelled", "queue", "somebody cancelled it"


def _head(outcome: Outcome) -> Iterator[tuple[str, str]]:
    yield "rollout", f"{outcome.run} task {outcome.task_index} rollout {outcome.rollout_index}"
    yield "agent", outcome.agent
    if outcome.worker:
        yield "worker", outcome.worker
    if outcome.policy_versions:
        yield "policy", ", ".join(version or "(as started)" for version in outcome.policy_versions)
    if outcome.attempt:
        yield "attempt", f"{outcome.attempt + 1} (those before it failed)"
    if outcome.started_at:
        yield "started", shown_time(outcome.started_at)
    yield "took", shown_seconds(outcome.duration_s)
    if isinstance(outcome, VerifiedRollout | Unresolved):
        usage = outcome.response.get("usage")
        if isinstance(usage, dict):
            yield "tokens", f"{usage.get('input_tokens', '?')} in, {usage.get('output_tokens', '?')} out"


def _verdict(outcome: Outcome) -> Iterator[tuple[str, str]]:
    if isinstance(outcome, VerifiedRollout):
        yield "reward", f"{outcome.reward:g}"
        for name, value in outcome.verdict.items():
            if not _is_long(value) and name != _PARAMS:
                yield name, value if isinstance(value, str) else _json(value)
        return
    failure_class, stage, message = why_no_reward(outcome)
    yield "no reward", f"{failure_class} at {stage}"
    yield "message", message
    if isinstance(outcome, Failure | Unresolved):
        yield "another try", _another_try(outcome)
    if isinstance(outcome, Unresolved):
        yield "to score it", "`gymq score` can verify the response again"


def _fields(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a row that are there for the environment: the expected answer, for one."""
    for name, value in row.items():
        if name in (_PARAMS, AGENT_REF) or name.startswith("_ng_"):
            continue
        text = value if isinstance(value, str) else _json(value)
        if len(text) > _MAX_FIELD_CHARS:
            text = f"{text[:_MAX_FIELD_CHARS]}… ({len(text):,} characters, --json has all)"
        yield name, text


def _is_long(value: Any) -> bool:
    return isinstance(value, dict | list) and (_has_calls(value) or len(_json(value)) > _MAX_LINE_CHARS)


def _has_calls(value: Any, levels: int = _LEVELS) -> bool:
    """Return whether a field of a verdict is a call of a judge, or holds some."""
    if isinstance(value, dict) and _call_of(value) is not None:
        return True
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and any(_has_calls(entry, levels - 1) for entry in inside)


def _call_of(value: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the request and the response of a judge's call, as `gymq.judge` and NeMo Gym store them."""
    request, response = value.get("request", value.get(_PARAMS)), value.get("response")
    if isinstance(request, dict) and isinstance(response, dict) and "input" in request and "output" in response:
        return request, response
    return None


def _print_structure(name: str, value: Any, console: Console, levels: int = _LEVELS) -> None:
    """Print a large field of a verdict: calls of a judge as conversations, the rest by fields."""
    if not levels:
        _print_section(name, _json(value), "yellow", console)
    elif isinstance(value, list) and any(isinstance(entry, dict | list) for entry in value):
        for index, entry in enumerate(value):
            _print_structure(f"{name}[{index}]", entry, console, levels - 1)
    elif isinstance(value, dict) and (call := _call_of(value)) is not None:
        _print_call(name, value, *call, console)
    elif isinstance(value, dict):
        short = {key: entry for key, entry in value.items() if not _is_long(entry)}
        lines = [f"{key}: {entry if isinstance(entry, str) else _json(entry)}" for key, entry in short.items()]
        _print_section(name, "\n".join(lines), "yellow", console)
        for key, entry in value.items():
            if key not in short:
                _print_structure(f"{name}.{key}", entry, console, levels - 1)
    else:
        _print_section(name, value if isinstance(value, str) else _json(value), "yellow", console)


def _print_call(
    name: str, value: Mapping[str, Any], request: Mapping[str, Any], response: Mapping[str, Any], console: Console
) -> None:
    rest = {key: entry for key, entry in value.items() if entry is not request and entry is not response}
    heading = ", ".join(f"{key}: {entry if isinstance(entry, str) else _json(entry)}" for key, entry in rest.items())
    console.print(Rule(printable(f"judge  {name}  {heading}", "yellow"), align="left", characters="─", style="yellow"))
    given = request.get("input")
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else _objects(given):
        _print_item(item, console)
    for item in _objects(response.get("output")):
        _print_item(item, console)


def _another_try(outcome: Failure | Unresolved) -> str:
    if outcome.curable:
        return "once its cause is removed: the same `gymq collect` retries it"
    return "may help" if outcome.retryable else "cannot help"


def _facts(facts: Iterator[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(printable(name, "bold"), printable(value))
    return table


def _print_item(item: Mapping[str, Any], console: Console) -> None:
    kind = item.get("type") or "message"
    if kind == "message":
        heading, style = str(item.get("role") or "message"), "cyan" if item.get("role") == "assistant" else "green"
        _print_section(heading, _content(item.get("content")), style, console)
    elif kind == "reasoning":
        parts = [*_objects(item.get("summary")), *_objects(item.get("content"))]
        _print_section("reasoning", "\n".join(_part(part) for part in parts) or "(hidden)", "dim", console)
    elif kind == "function_call":
        arguments = _pretty(item.get("arguments"))
        _print_section(f"call of {item.get('name')}  {item.get('call_id')}", arguments, "magenta", console)
    elif kind == "function_call_output":
        _print_section(f"output of {item.get('call_id')}", _content(item.get("output")), "blue", console)
    else:
        rest = {name: value for name, value in item.items() if name not in ("type", *TOKEN_FIELDS)}
        _print_section(str(kind), _json(rest), "magenta", console)
    counts = [f"{len(item[name])} {name}" for name in TOKEN_FIELDS if item.get(name) is not None]
    if counts:
        console.print(Text(_INDENT + ", ".join(counts), style="dim"))


def _print_section(heading: str, body: str, style: str, console: Console) -> None:
    console.print(Rule(printable(heading, style), align="left", style="dim", characters="─"))
    # Text is indented here, not by rich, so that long lines of code are wrapped by the terminal and copied whole.
    console.print(printable("\n".join(_INDENT + line for line in body.splitlines() or [""])), soft_wrap=True)


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(_part(part) for part in _objects(content))


def _part(part: Mapping[str, Any]) -> str:
    for field in ("text", "refusal"):
        if isinstance(part.get(field), str):
            return str(part[field])
    return _json(part)


def _pretty(arguments: Any) -> str:
    """Return JSON arguments over several lines; anything else as the model wrote it."""
    try:
        value = json.loads(arguments)
    except (TypeError, ValueError, RecursionError):
        return str(arguments)
    return json.dumps(value, indent=2, ensure_ascii=False)


def _json(value: Any) -> str:
    return _encode(value).decode()


def _objects(value: Any) -> Sequence[dict[str, Any]]:
    """Return the objects of a list that may hold anything, since a failed row was never checked."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _row(row: bytes) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(row)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
