"""A data set as the rows of a run, and the rows of an interrupted run that are still to do."""

import json
from typing import Any

from pydantic import ValidationError

from gymq.data.jsonl import JsonlError, JsonlText
from gymq.data.materialise import Materialisation, MaterialiseOptions
from gymq.data.prompt import RowPrompt
from gymq.data.resume import Resume
from gymq.data.rows import RowError
from gymq.errors import UsageError

from ..refused import Refused


async def run(case_input: dict[str, Any]) -> dict[str, Any]:
    operations = {"preprocess": _preprocess, "resume": _resume}
    try:
        return operations[case_input["op"]](case_input)
    except (JsonlError, UsageError, RowError, ValidationError) as error:
        raise Refused(str(error)) from None


def _preprocess(case_input: dict[str, Any]) -> dict[str, Any]:
    options = dict(case_input["config"])
    if case_input.get("prompt_yaml") is not None:
        options["prompt"] = RowPrompt.from_yaml(case_input["prompt_yaml"], "prompt.yaml")
    with Materialisation(MaterialiseOptions(**options)) as materialisation:
        source = JsonlText("input.jsonl", case_input["input_text"].encode())
        rows = [json.loads(row.json) for row in materialisation.rows(source)]
        return {"rows": rows, "warnings": len(materialisation.warnings)}


def _resume(case_input: dict[str, Any]) -> dict[str, Any]:
    files = [_file(name, case_input[name]) for name in ("materialized", "completed", "failures")]
    limit = {} if case_input.get("max_attempts") is None else {"max_attempts": case_input["max_attempts"]}
    with Resume(*files, **limit) as resume:
        return {
            "to_run": [json.loads(row.json) for row in resume.to_run()],
            "already_rows": [list(key) for key in map(_key, case_input["completed"]) if key in resume.done],
        }


def _key(row: dict[str, Any]) -> tuple[int, int]:
    return row["_ng_task_index"], row["_ng_rollout_index"]


def _file(name: str, rows: list[Any]) -> JsonlText:
    return JsonlText(f"{name}.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows).encode())
