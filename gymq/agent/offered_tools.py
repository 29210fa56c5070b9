"""The tools that a row offers to the model: its own schemas, the names of an environment's tools, or all of them.

Without `responses_create_params.tools` a row offers every tool of its environment. An entry that is a string selects a
tool by name, other entries are schemas and stay unchanged, and an empty list offers no tools.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import msgspec

from gymq.data.rows import PARAMS
from gymq.failures import InvalidTask

Schema = dict[str, Any]


def needs_schemas(params: dict[str, Any]) -> bool:
    """Return whether a row needs the schemas of its environment's tools."""
    tools = params.get("tools")
    return tools is None or any(isinstance(tool, str) for tool in tools)


def names(params: dict[str, Any]) -> set[str]:
    """Return the names of the tools that a row offers, once its environment has been asked for theirs."""
    return {tool["name"] for tool in params.get("tools") or () if isinstance(tool, dict) and "name" in tool}


def offered(
    params: dict[str, Any], schemas: Sequence[Schema], names_only: Sequence[Schema], resources: str
) -> list[Any]:
    """Return the tools of a row with the environment's in place of their names.

    Args:
        params: the row's `responses_create_params`.
        schemas: the tools that the environment offers by default.
        names_only: further tools, for rows that name them.
        resources: the environment's name, for errors.

    Raises:
        InvalidTask: the environment has no tool of a name.
    """
    tools = params.get("tools")
    if tools is None:
        return list(schemas)
    known = {schema["name"]: schema for schema in (*schemas, *names_only)}
    for index, tool in enumerate(tools):
        if isinstance(tool, str) and tool not in known:
            nearest = difflib.get_close_matches(tool, known, 1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(sorted(known)) or 'none'}"
            raise InvalidTask(f"{PARAMS}.tools[{index}]: {resources} has no tool {tool!r}; {hint}")
    return [known[tool] if isinstance(tool, str) else tool for tool in tools]


def row_with(row: bytes, tools: list[Any]) -> bytes:
    """Return a row, JSON text, with these tools; all other fields keep their bytes."""
    fields = msgspec.json.decode(row, type=dict[str, msgspec.Raw])
    params = msgspec.json.decode(fields[PARAMS], type=dict[str, msgspec.Raw])
    return msgspec.json.encode(fields | {PARAMS: params | {"tools": tools}})
