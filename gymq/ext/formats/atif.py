"""Trajectories in the Agent Trajectory Interchange Format, ATIF, of Harbor: https://harborframework.com/docs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from gymq.data.jsonl import JsonlError
from gymq.ext.conversion.items import reasoning_item, reasoning_texts
from gymq.ext.conversion.to_chat import as_function
from gymq.ext.rollout_files.files import Format
from gymq.ext.rollout_files.rollout import ForeignRollout, index_or, number, usage_of
from gymq.ext.rollout_files.shown import row_of
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import VerifiedRollout
from gymq.responses import Item, function_call_output
from gymq.responses.items import new_id
from gymq.runs.outcome_fields import as_object, own_fields, params_of, prompt_of

VERSION = "ATIF-v1.4"
"""The version that is written; it is the first with the tokens of prompts, and all later ones read it."""

_PREFIX = "ATIF-v1."
OURS = "gymq"  # in `extra`: what a line of ours has and the format has no place for


def is_atif(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("schema_version"), str) and value["schema_version"].startswith("ATIF-")


def read_atif(value: Mapping[str, Any], where: str, index: int) -> ForeignRollout:
    """Return the rollout of a trajectory.

    Args:
        index: number of its task, where it says none.

    Raises:
        JsonlError: it is of another major version, or a step is not what it should be.
    """
    if not value["schema_version"].startswith(_PREFIX):
        raise JsonlError(f"{where}: schema_version {value['schema_version']!r} is not known; expected {_PREFIX}x")
    agent = _mapping(value.get("agent"), f"{where}: agent")
    extra = as_object(value.get("extra"))
    ours = as_object(extra.get(OURS))
    prompt: list[Item] = []
    output: list[Item] = []
    steps, given = value.get("steps"), number(ours.get("prompt_steps"))
    if not isinstance(steps, list):
        raise JsonlError(f"{where}: steps: expected a list")
    for position, step in enumerate(steps):
        place = f"{where}: steps[{position}]"
        items = list(_items(_mapping(step, place), place))
        is_made = bool(output) or step.get("source") == "agent" if given is None else position >= given
        (output if is_made else prompt).extend(items)
    metrics = as_object(value.get("final_metrics"))
    more = as_object(metrics.get("extra"))
    reward = next(
        (found for one in (ours, extra, more, metrics) if (found := number(one.get("reward"))) is not None), None
    )
    return ForeignRollout(
        task_index=index_or(ours.get("task_index"), index),
        rollout_index=index_or(ours.get("rollout_index"), 0),
        agent=str(ours.get("agent") or agent.get("name") or ""),
        prompt=prompt,
        output=output,
        reward=reward,
        row=as_object(ours.get("row")),
        tools=[tool for tool in ours.get("tools") or () if isinstance(tool, dict)],
        verdict=as_object(ours.get("verdict")),
        model=str(agent.get("model_name") or ""),
        usage=usage_of(metrics.get("total_prompt_tokens"), metrics.get("total_completion_tokens")),
    )


def write_atif(
    *,
    session: str,
    agent: str,
    version: str,
    prompt: Sequence[Item],
    response: Mapping[str, Any],
    ours: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the trajectory of a rollout.

    Args:
        version: of the program that made it.
        ours: what the format has no place for, such as reward, row and verdict.
    """
    given = _steps_of(prompt)
    steps = given + _steps_of(response["output"])
    for number_, step in enumerate(steps, 1):
        step["step_id"] = number_
    usage = response.get("usage") or {}
    totals = {"total_prompt_tokens": usage.get("input_tokens"), "total_completion_tokens": usage.get("output_tokens")}
    model = {"model_name": response["model"]} if response.get("model") else {}
    return {
        "schema_version": VERSION,
        "session_id": session,
        "agent": {"name": agent, "version": version, **model},
        "steps": [{"step_id": step.pop("step_id"), **step} for step in steps],
        "final_metrics": {name: value for name, value in totals.items() if value is not None}
        | {"total_steps": len(steps)},
        "extra": {OURS: {**ours, "prompt_steps": len(given)}},
    }


# Steps to items -------------------------------------------------------------------------------------------------------


def _items(step: Mapping[str, Any], where: str) -> Iterator[Item]:
    source, text = step.get("source"), _text(step.get("message"))
    if source in ("user", "system"):
        if text:
            yield {"type": "message", "role": source, "content": text}
    elif source != "agent":
        raise JsonlError(f"{where}: source {source!r} is not one of system, user, agent")
    else:
        yield from _agent_items(step, text, where)
    for result in _results(step):
        call = result.get("source_call_id")
        content = _text(result.get("content"))
        if isinstance(call, str) and call:
            yield dict(function_call_output(call, content))
        elif content:
            yield {"type": "message", "role": "user", "content": content}


def _agent_items(step: Mapping[str, Any], text: str, where: str) -> Iterator[Item]:
    made: list[Item] = []
    if reasoning := _text(step.get("reasoning_content")):
        made.append(reasoning_item([reasoning]))
    if text:
        made.append({"type": "message", "id": new_id("msg"), **_said(text)})
    for position, call in enumerate(step.get("tool_calls") or ()):
        call = _mapping(call, f"{where}: tool_calls[{position}]")
        arguments = call.get("arguments")
        made.append(
            {
                "type": "function_call",
                "call_id": str(call.get("tool_call_id")),
                "name": str(call.get("function_name")),
                "arguments": arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode(),
            }
        )
    if not made:
        made.append({"type": "message", "id": new_id("msg"), **_said("")})
    made[-1] |= _tokens(step.get("metrics"))
    yield from made


def _tokens(metrics: object) -> Item:
    given = as_object(metrics)
    prompt, made, logs = (given.get(name) for name in ("prompt_token_ids", "completion_token_ids", "logprobs"))
    if not (isinstance(prompt, list) and isinstance(made, list) and isinstance(logs, list) and len(made) == len(logs)):
        return {}
    return {"prompt_token_ids": prompt, "generation_token_ids": made, "generation_log_probs": logs}


def _said(text: str) -> Item:
    return {
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _results(step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, dict) else None
    return [one for one in results or () if isinstance(one, dict)]


def _text(content: object) -> str:
    """Return a text, or those among parts of content; later versions have parts with images."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and part.get("text") is not None)


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise JsonlError(f"{where}: expected an object")
    return value


# Items to steps -------------------------------------------------------------------------------------------------------


def _steps_of(items: Sequence[Item]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    owners: dict[str, dict[str, Any]] = {}  # by call
    for item in items:
        _add(steps, owners, as_function(item) or item)
    return steps


def _add(steps: list[dict[str, Any]], owners: dict[str, dict[str, Any]], item: Item) -> None:
    """Add an item to the steps: to the last one, if it belongs to the same reply or is the result of its call."""
    kind = item.get("type") or "message"
    last = steps[-1] if steps and steps[-1]["source"] == "agent" else None
    if kind == "function_call_output":
        call = item.get("call_id")
        result: dict[str, Any] = {"content": _parts_text(item.get("output"))}
        owner = owners.get(str(call))
        if owner is not None:
            result = {"source_call_id": call, **result}  # only a call of the same step may be named
        else:
            owner = _new(steps, "system")
        owner.setdefault("observation", {"results": []})["results"].append(result)
        return
    if kind == "message" and item.get("role") != "assistant":
        steps.append({"source": "user" if item.get("role") == "user" else "system", "message": ""})
        steps[-1]["message"] = _parts_text(item.get("content"))
        return
    is_new = last is None or "observation" in last or "metrics" in last or (kind == "reasoning" and len(last) > 2)
    step = _new(steps, "agent") if is_new or last is None else last
    if kind == "reasoning":
        step["reasoning_content"] = "\n".join(reasoning_texts(item))
    elif kind == "function_call":
        step.setdefault("tool_calls", []).append(_call(item))
        owners[str(item.get("call_id"))] = step
    else:
        text = _parts_text(item.get("content"))
        step["message"] = f"{step['message']}\n{text}" if step["message"] else text
    _measure(step, item)


def _new(steps: list[dict[str, Any]], source: str) -> dict[str, Any]:
    steps.append({"source": source, "message": ""})
    return steps[-1]


def _call(item: Item) -> dict[str, Any]:
    try:
        arguments = msgspec.json.decode(item.get("arguments") or "{}")
    except UNDECODABLE:
        arguments = None
    if not isinstance(arguments, dict):  # the format asks for an object, and the model wrote something else
        arguments = {"arguments": item.get("arguments")}
    return {"tool_call_id": item.get("call_id"), "function_name": item.get("name"), "arguments": arguments}


def _measure(step: dict[str, Any], item: Item) -> None:
    made = item.get("generation_token_ids")
    if not made:
        return
    prompt = list(item.get("prompt_token_ids") or ())
    step["metrics"] = {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(made),
        "prompt_token_ids": prompt,
        "completion_token_ids": list(made),
        "logprobs": list(item.get("generation_log_probs") or ()),
    }


def _parts_text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text", part.get("refusal")) for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _written(outcome: VerifiedRollout) -> dict[str, Any]:
    row = row_of(outcome)
    params = params_of(row, outcome.verdict)
    ours = {
        "run": outcome.run,
        "task_index": outcome.task_index,
        "rollout_index": outcome.rollout_index,
        "agent": outcome.agent,
        "reward": outcome.reward,
        "row": own_fields(row),
        "verdict": {name: value for name, value in outcome.verdict.items() if name != "responses_create_params"},
        "tools": [tool for tool in params.get("tools") or () if isinstance(tool, dict)],
    }
    return write_atif(
        session=str(outcome.rollout_id),
        agent=outcome.agent,
        version=version("gymq"),
        prompt=prompt_of(params),
        response=outcome.response,
        ours=ours,
    )


ATIF = Format(
    name="a trajectory in ATIF",
    is_it=is_atif,
    read=lambda value, where, index, repeats: [read_atif(value, where, index)],
    is_document=True,
    write=_written,
)
