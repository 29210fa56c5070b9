"""Rows that script what model, tools and verifier do."""

import json
from collections.abc import Sequence
from typing import Any


def row(
    agent: str,
    text: str = "a question",
    *,
    values: Sequence[int] = (),
    grade: float = 1.0,
    latencies_s: Sequence[float] = (0.02,),
    tool_s: Sequence[float] = (),
    verify_s: float = 0.0,
    **members: Any,
) -> dict[str, Any]:
    """A row.

    Args:
        values: what the model gives the tool `push`, one value a turn; then it says the grade.
        grade: the reward that is right.
        latencies_s: of each model call; the last one for all further calls.
        tool_s: of each tool call.
        members: of the row, and of the script that the model gets.
    """
    script = {"values": values, "grade": grade, "latencies_s": latencies_s, **members}
    params: dict[str, Any] = {"input": text, "metadata": {"script": json.dumps(script)}}
    if values:
        integer = {"type": "integer"}
        schema = {"type": "object", "properties": {"turn": integer, "value": integer}}
        params["tools"] = [{"type": "function", "name": "push", "parameters": schema, "strict": False}]
    return {
        "agent_ref": {"name": agent},
        "responses_create_params": params,
        "values": values,
        "grade": grade,
        "tool_s": tool_s or [0.0] * len(values),
        "verify_s": verify_s,
        **members,
    }
