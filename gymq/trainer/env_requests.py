"""Requests of verifiers 0.4.0 to an environment server, and their rows."""

from __future__ import annotations

from typing import Any

import msgspec

from gymq.data.jsonl import parse_object
from gymq.data.rows import PARAMS
from gymq.trainer.groups import Row, TrainerError
from gymq.trainer.sampling_params import with_sampling


class Client(msgspec.Struct):
    type: str = "eval"  # `train` if its episodes are trained on


class RunRequest(msgspec.Struct):
    """A request for a rollout. The endpoint that it names is not asked: the cluster's model answers."""

    task_data: dict[str, Any]
    client: Client
    model: str
    sampling: dict[str, Any]


class CancelRequest(msgspec.Struct):
    request_id: str


def row_of(request: RunRequest) -> Row:
    """Return the row of a request, with its sampling parameters.

    Raises:
        TrainerError, JsonlError, msgspec.MsgspecError: there is none.
    """
    text = request.task_data.get("row")
    if not isinstance(text, str):
        raise TrainerError("task_data.row must be the text of a row, as the taskset gymq_rows sends it")
    row: Row = dict(parse_object(text.encode()))
    if PARAMS not in row:
        raise TrainerError(f"task_data.row has no `{PARAMS}`")
    params = with_sampling(msgspec.json.decode(row[PARAMS], type=dict[str, Any]), request.sampling)
    instructions = request.task_data.get("system_prompt")  # of prime-rl's configuration
    row[PARAMS] = params if instructions is None else params | {"instructions": instructions}
    return row
