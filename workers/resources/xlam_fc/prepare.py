"""Turn xlam-function-calling-60k into rows, and hold some of them out.

python -m gymq.workers.resources.xlam_fc.prepare SOURCE.json --train train.jsonl --validation validation.jsonl
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

INSTRUCTIONS = (
    "Answer by calling the functions you are given. Call several of them, or one several times, if you need to."
)
HELD_OUT = 1000
SEED = 42

JSON_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "set": "array",
    "dict": "object",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write rows of xlam_fc from the published data set.")
    parser.add_argument("source", type=Path, help="xlam_function_calling_60k.json")
    parser.add_argument("--train", type=Path, required=True, help="where most rows go")
    parser.add_argument("--validation", type=Path, required=True, help=f"where {HELD_OUT} rows go that are held out")
    arguments = parser.parse_args()
    if not arguments.source.is_file():
        parser.error(f"the file {arguments.source} does not exist")
    entries = json.loads(arguments.source.read_text(encoding="utf-8"))
    rows = [row for row in map(make_row, entries) if row is not None]
    random.Random(SEED).shuffle(rows)
    write(arguments.validation, rows[:HELD_OUT])
    write(arguments.train, rows[HELD_OUT:])


def make_row(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return the row for one entry; None if it has no tools or no answers."""
    tools, answers = json.loads(entry["tools"]), json.loads(entry["answers"])
    if not tools or not answers:
        return None
    messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": entry["query"]}]
    return {
        "id": entry["id"],
        "responses_create_params": {"input": messages, "tools": [make_tool(tool) for tool in tools]},
        "expected_answers": answers,
        "agent_ref": {"type": "responses_api_agents", "name": "xlam_fc_simple_agent"},
    }


def make_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return the function with its parameters as JSON schema. A parameter may be left out if its type says so."""
    properties, required = {}, []
    for name, parameter in tool["parameters"].items():
        python_type = parameter.get("type", "")
        properties[name] = schema = json_schema(python_type)
        schema["description"] = parameter.get("description", "")
        if "optional" not in python_type.lower():
            required.append(name)
        elif "default" in parameter:
            schema["default"] = parameter["default"]
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool.get("description", ""),
        "parameters": {"type": "object", "properties": properties, "required": required, "additionalProperties": False},
        "strict": False,
    }


def json_schema(python_type: str) -> dict[str, Any]:
    """Return the JSON schema for a type such as `int`, `str, optional`, `List[float]`, `Optional[dict]`.

    The schema allows any value if the type is not known.
    """
    name = python_type.split(",")[0].strip() if "[" not in python_type else python_type.strip()
    outer, _, inner = name.partition("[")
    if outer.lower() == "optional":
        return json_schema(inner.rpartition("]")[0])
    kind = JSON_TYPES.get(outer.strip().lower())
    if kind is None:
        return {}
    if kind == "array":
        return {"type": kind, "items": json_schema(inner.rpartition("]")[0]) if inner else {}}
    return {"type": kind}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
