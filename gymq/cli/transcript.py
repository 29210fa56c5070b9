"""One rollout as a person reads it: what was asked, said, called and answered, and the verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from gymq.cli.printable import printable
from gymq.cli.units import shown_seconds, shown_time
from gymq.messages import Failure, Outcome, Rollout, Unresolved
from gymq.tokens import TOKEN_MEMBERS, encode_json

_INDENT = "  "

_encode = msgspec.json.Encoder(enc_hook=encode_json).encode


def print_transcript(outcome: Outcome, console: Console) -> None:
    """Print a rollout whole: nothing is shortened but token ids and log probs, which are counted."""
    console.print(_facts(_head(outcome)))
    params = _params(outcome.row)
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
    if isinstance(outcome, Rollout | Unresolved):
        console.print(Rule("response", style="bold", characters="═"))
        for item in _objects(outcome.response.get("output")):
            _print_item(item, console)
        cut = outcome.response.get("incomplete_details")
        if cut:
            _print_section("incomplete", _json(cut), "yellow", console)
    console.print(Rule("verdict", style="bold", characters="═"))
    console.print(_facts(_verdict(outcome)))


def tokens_of(outcome: Outcome) -> int | None:
    """Output tokens of a rollout, as the model counted them."""
    if not isinstance(outcome, Rollout | Unresolved):
        return None
    usage = outcome.response.get("usage")
    count = usage.get("output_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) else None


def why_no_reward(outcome: Outcome) -> tuple[str, str, str]:
    """Failure class, stage and message of a rollout without a reward."""
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
    if isinstance(outcome, Rollout | Unresolved):
        usage = outcome.response.get("usage")
        if isinstance(usage, dict):
            yield "tokens", f"{usage.get('input_tokens', '?')} in, {usage.get('output_tokens', '?')} out"


def _verdict(outcome: Outcome) -> Iterator[tuple[str, str]]:
    if isinstance(outcome, Rollout):
        yield "reward", f"{outcome.reward:g}"
        for name, value in outcome.verdict.items():
            yield name, value if isinstance(value, str) else _json(value)
        return
    failure_class, stage, message = why_no_reward(outcome)
    yield "no reward", f"{failure_class} at {stage}"
    yield "message", message
    if isinstance(outcome, Failure | Unresolved):
        yield "another try", "may help" if outcome.retryable else "cannot help"
    if isinstance(outcome, Unresolved):
        yield "to score it", "`gymq score` can verify the response again"


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
        rest = {name: value for name, value in item.items() if name not in ("type", *TOKEN_MEMBERS)}
        _print_section(str(kind), _json(rest), "magenta", console)
    counts = [f"{len(item[name])} {name}" for name in TOKEN_MEMBERS if item.get(name) is not None]
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
    for member in ("text", "refusal"):
        if isinstance(part.get(member), str):
            return str(part[member])
    return _json(part)


def _pretty(arguments: Any) -> str:
    """JSON arguments over several lines; anything else as the model wrote it."""
    try:
        value = json.loads(arguments)
    except (TypeError, ValueError, RecursionError):
        return str(arguments)
    return json.dumps(value, indent=2, ensure_ascii=False)


def _json(value: Any) -> str:
    return _encode(value).decode()


def _objects(value: Any) -> Sequence[dict[str, Any]]:
    """The objects of a list that may hold anything: a failed row was never checked."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _params(row: bytes) -> dict[str, Any]:
    try:
        params = msgspec.json.decode(row)["responses_create_params"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        return {}
    return params if isinstance(params, dict) else {}
