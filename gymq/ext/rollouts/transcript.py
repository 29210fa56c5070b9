"""One rollout as a person reads it: what was asked, said, called and answered, the row, the verdict and its judges."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from gymq.data.rows import PARAMS, attempt_index
from gymq.ext.rollout_files.shown import (
    MAX_LEVELS,
    JudgeCall,
    fields_beside_prompt,
    judge_call,
    judge_calls,
    readable_content,
    retry_words,
    row_of,
    shown_calls,
    value_text,
)
from gymq.ext.shared.rendering import facts_table, shown_time
from gymq.protocol.messages import Failure, Outcome, Unresolved, VerifiedRollout
from gymq.protocol.tokens import TOKEN_FIELDS
from gymq.render import printable, shown_decimal, shown_seconds
from gymq.runs.outcome_fields import objects, own_fields, params_of, prompt_of

_INDENT = "  "


def print_transcript(outcome: Outcome, console: Console) -> None:
    """Print a rollout whole: only long fields of the row are cut short, and token ids and log probs counted."""
    console.print(facts_table(_head(outcome)))
    row = row_of(outcome)
    verdict = outcome.verdict if isinstance(outcome, VerifiedRollout) else {}
    params = params_of(row, verdict)
    instructions = params.get("instructions")
    if isinstance(instructions, str):
        _print_section("instructions", instructions, "", console)
    tools = [str(tool.get("name") or tool.get("type")) for tool in objects(params.get("tools"))]
    if tools:
        _print_section("tools offered", ", ".join(tools), "", console)
    for item in prompt_of(params):
        _print_item(item, console)
    if isinstance(outcome, VerifiedRollout | Unresolved):
        console.print(Rule("response", style="bold", characters="═"))
        for item in objects(outcome.response.get("output")):
            _print_item(item, console)
        cut = outcome.response.get("incomplete_details")
        if cut:
            _print_section("incomplete", value_text(cut), "yellow", console)
    if fields := list(_fields(row)):
        console.print(Rule("row", style="bold", characters="═"))
        console.print(facts_table(fields))
    console.print(Rule("verdict", style="bold", characters="═"))
    console.print(facts_table(_verdict(outcome)))
    shown_elsewhere = {name for name, calls in shown_calls(verdict).items() if not calls}
    for name, value in verdict.items():
        if _is_long(value) and name != PARAMS and name not in shown_elsewhere:
            _print_structure(name, value, console)


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
    if before := attempt_index(outcome.row, outcome.attempt):
        yield "attempt", f"{before + 1} (those before it failed)"
    if outcome.started_at:
        yield "started", shown_time(outcome.started_at)
    yield "took", shown_seconds(outcome.duration_s)
    if isinstance(outcome, VerifiedRollout | Unresolved):
        usage = outcome.response.get("usage")
        if isinstance(usage, dict):
            yield "tokens", f"{usage.get('input_tokens', '?')} in, {usage.get('output_tokens', '?')} out"


def _verdict(outcome: Outcome) -> Iterator[tuple[str, str]]:
    if isinstance(outcome, VerifiedRollout):
        yield "reward", shown_decimal(outcome.reward)
        for name, value in outcome.verdict.items():
            if not _is_long(value) and name != PARAMS:
                yield name, _ticked(value) if _has_ticks(value) else value_text(value)
        return
    failure_class, stage, message = why_no_reward(outcome)
    yield "no reward", f"{failure_class} at {stage}"
    yield "message", message
    if isinstance(outcome, Failure | Unresolved):
        yield "a retry", retry_words(outcome)
    if isinstance(outcome, Unresolved):
        yield "to score it", "`gymq score` can verify the response again"


def _fields(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a row that are there for the environment: the expected answer, for one; not the prompt."""
    for name, value in fields_beside_prompt(own_fields(row), params_of(row, {})).items():
        text = value_text(value)
        if len(text) > 2000:
            text = f"{text[:2000]}… ({len(text):,} characters, --json has all)"
        yield name, text


def _has_ticks(value: Any) -> bool:
    """Return whether a value says of several things, such as criteria, whether they are so."""
    return isinstance(value, dict) and bool(value) and all(isinstance(entry, bool) for entry in value.values())


def _ticked(value: dict[str, bool]) -> str:
    return "\n".join(f"{'✓' if entry else '✗'} {name}" for name, entry in value.items())


def _is_long(value: Any) -> bool:
    if not isinstance(value, dict | list) or _has_ticks(value):
        return False
    return any(judge_calls("", value)) or len(value_text(value)) > 200


def _print_structure(name: str, value: Any, console: Console, levels: int = MAX_LEVELS) -> None:
    """Print a large field of a verdict: calls of a judge as conversations, the rest by fields."""
    if not levels:
        _print_section(name, value_text(value), "yellow", console)
    elif isinstance(value, list) and any(isinstance(entry, dict | list) for entry in value):
        for index, entry in enumerate(value):
            _print_structure(f"{name}[{index}]", entry, console, levels - 1)
    elif isinstance(value, dict) and (call := judge_call(name, value)) is not None:
        _print_call(call, console)
    elif isinstance(value, dict):
        short = {key: entry for key, entry in value.items() if not _is_long(entry)}
        lines = [f"{key}: {value_text(entry)}" for key, entry in short.items()]
        _print_section(name, "\n".join(lines), "yellow", console)
        for key, entry in value.items():
            if key not in short:
                _print_structure(f"{name}.{key}", entry, console, levels - 1)
    else:
        _print_section(name, value_text(value), "yellow", console)


def _print_call(call: JudgeCall, console: Console) -> None:
    facts = [f"{key}: {value_text(entry)}" for key, entry in call.facts.items() if entry is not None]
    _print_section(f"judge  {call.path}", ", ".join(facts), "yellow", console)
    for item in (*call.prompt, *call.output):
        _print_item(item, console)


def _print_item(item: Mapping[str, Any], console: Console) -> None:
    kind = item.get("type") or "message"
    if kind == "message":
        heading, style = str(item.get("role") or "message"), "cyan" if item.get("role") == "assistant" else "green"
        _print_section(heading, readable_content(item.get("content")), style, console)
    elif kind == "reasoning":
        parts = [*objects(item.get("summary")), *objects(item.get("content"))]
        _print_section("reasoning", readable_content(parts) or "(hidden)", "dim", console)
    elif kind == "function_call":
        arguments = _pretty(item.get("arguments"))
        _print_section(f"call of {item.get('name')}  {item.get('call_id')}", arguments, "magenta", console)
    elif kind == "function_call_output":
        _print_section(f"output of {item.get('call_id')}", readable_content(item.get("output")), "blue", console)
    else:
        rest = {name: value for name, value in item.items() if name not in ("type", *TOKEN_FIELDS)}
        _print_section(str(kind), value_text(rest), "magenta", console)
    counts = [f"{len(item[name])} {name}" for name in TOKEN_FIELDS if item.get(name) is not None]
    if counts:
        console.print(Text(_INDENT + ", ".join(counts), style="dim"))


def _print_section(heading: str, body: str, style: str, console: Console) -> None:
    console.print(Rule(printable(heading, style), align="left", style="dim", characters="─"))
    # Text is indented here, not by rich, so that long lines of code are wrapped by the terminal and copied whole.
    console.print(printable("\n".join(_INDENT + line for line in body.splitlines() or [""])), soft_wrap=True)


def _pretty(arguments: Any) -> str:
    """Return JSON arguments over several lines; anything else as the model wrote it."""
    try:
        value = json.loads(arguments)
    except (TypeError, ValueError, RecursionError):
        return str(arguments)
    return json.dumps(value, indent=2, ensure_ascii=False)
