"""What every row of the demo has: a prompt, the verifier's members, an agent, and what the simulated policy does."""

from __future__ import annotations

import json
from typing import Any

Row = dict[str, Any]
Action = dict[str, Any]
Script = list[list[Action]]  # turns of actions

# Longer metadata values are refused by the OpenAI API, and the rows should work with any policy.
MAX_METADATA_CHARACTERS = 512


def say(text: str) -> Action:
    """The policy writes a message."""
    return {"text": text}


def call(name: str, /, **arguments: Any) -> Action:
    """The policy calls a tool."""
    return {"call": {"name": name, "arguments": arguments}}


def make_row(
    agent: str,
    user: str,
    *,
    solution: Script,
    mistake: Script,
    system: str | None = None,
    tools: list[dict[str, Any]] | None = None,
    **members: Any,
) -> Row:
    """A row for the agent instance; `members` are for the verifier."""
    messages = [{"role": "user", "content": user}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    params: dict[str, Any] = {"input": messages}
    if tools is not None:
        params["tools"] = tools
    params["metadata"] = {"simulated_solution": _text(solution), "simulated_mistake": _text(mistake)}
    return {
        "responses_create_params": params,
        **members,
        "agent_ref": {"type": "responses_api_agents", "name": agent},
    }


def _text(script: Script) -> str:
    text = json.dumps(script, ensure_ascii=False, separators=(",", ":"))
    if len(text) > MAX_METADATA_CHARACTERS:
        raise ValueError(f"a script has {len(text)} characters, at most {MAX_METADATA_CHARACTERS} are possible: {text}")
    return text
