"""Gold replies: for rows of an environment, the reply that earns the full reward.

They are in `data/gold.jsonl` in the worker's folder, one JSON object per line. Without that file, they are taken from
the rows of `data/example.jsonl`: `metadata.simulated_solution`, the solution for the simulated model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gymq.data.jsonl import JsonlFile
from gymq.data.short_rows import whole_row
from gymq.data.solutions import SOLUTION, Action, ActionCall, read_solution
from gymq.errors import UsageError
from gymq.execution.loading.worker_source import WorkerSource
from gymq.ext.audit.report import FAMILIES, REPLIES
from gymq.resources import Resources
from gymq.resources.text_environment import TextEnvironment
from gymq.testing.harness import HarnessSession
from gymq.testing.scripts import JudgeRule, function_call, reply, texts_in


class Gold(msgspec.Struct, forbid_unknown_fields=True):
    """One line of the file.

    Attributes:
        reply: a text, or texts and calls in order.
        row: the line of data/example.jsonl, counted from 1, or the row itself.
        reward: the reward it earns; by default the upper end of the worker's `reward_range`.
        floor: the highest reward of a worthless reply, if the verifier gives some credit to every reply; by default 0,
            or the lower end of the range if that is higher.
        judge: rules of a scripted judge; the rules of all lines are used together.
        may_pass: names of replies (`gymq.ext.audit.report.REPLIES`) that may be rewarded for this row, with the reason;
            also of `FAMILIES`, whose answers may be refused or rewarded.
    """

    reply: str | list[Action]
    row: int | dict[str, Any] = 1
    reward: float | None = None
    floor: float | None = None
    judge: list[JudgeRule] = []
    may_pass: dict[str, str] = {}

    @property
    def actions(self) -> list[Action]:
        """The reply as actions."""
        return [Action(text=self.reply)] if isinstance(self.reply, str) else self.reply

    @property
    def text(self) -> str:
        """All texts of the reply, including the arguments of calls."""
        parts = [action.text if action.call is None else json.dumps(action.call.arguments) for action in self.actions]
        return "\n".join(part for part in parts if part)


class GoldRow(msgspec.Struct):
    """A gold reply with its row.

    Attributes:
        where: file and line.
        reward: the reward that the reply earns.
        floor: the highest reward of a worthless reply.
    """

    where: str
    gold: Gold
    row: dict[str, Any]
    reward: float
    floor: float

    @property
    def prompt_text(self) -> str:
        """All texts of the prompt."""
        params = self.row.get("responses_create_params", {})
        asked = params.get("input", "")
        messages = [asked] if isinstance(asked, str) else [message.get("content") for message in asked]
        return "\n".join(text for message in messages for text in texts_in(message) if not text.startswith("data:"))

    @property
    def tool_names(self) -> list[str]:
        """The names of the functions that the row offers."""
        tools = self.row.get("responses_create_params", {}).get("tools") or ()
        return [tool["name"] for tool in tools if tool.get("type") == "function"]


def read_gold(source: WorkerSource) -> list[GoldRow]:
    """Read the gold replies of a worker.

    Raises:
        UsageError: they are missing, or one cannot be used.
        JsonlError, RowError: a file cannot be read, or a row cannot be used.
    """
    examples = [] if source.examples is None else [json.loads(whole_row(line)) for line in JsonlFile(source.examples)]
    if source.gold is None:
        found = _of_examples(examples)
    else:
        numbered = ((f"{source.gold.name}:{number}", line) for number, line in enumerate(JsonlFile(source.gold), 1))
        found = [(where, _decoded(line, where)) for where, line in numbered]
    if not found:
        raise UsageError(
            f"{source.name}: gold replies are missing; write some into data/gold.jsonl beside the worker, or give the "
            "rows of data/example.jsonl a `simulated_solution`"
        )
    assert issubclass(source.cls, Resources)
    return [_with_row(where, gold, examples, source.cls) for where, gold in found]


def _decoded(line: bytes, where: str) -> Gold:
    try:
        gold = msgspec.json.decode(line, type=Gold)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"{where}: {error}") from None
    known = (*FAMILIES, *REPLIES)
    unknown = gold.may_pass.keys() - set(known)
    if unknown:
        raise UsageError(f"{where}: `may_pass` names {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    return gold


def _of_examples(examples: list[dict[str, Any]]) -> list[tuple[str, Gold]]:
    found = []
    for number, row in enumerate(examples, 1):
        try:
            actions = read_solution(row.get("responses_create_params", {}))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise UsageError(f"example.jsonl:{number}: metadata.{SOLUTION}: {error}") from None
        if actions is not None:
            found.append((f"example.jsonl:{number}", Gold(actions, number)))
    return found


def _with_row(where: str, gold: Gold, examples: list[dict[str, Any]], cls: type[Resources[Any]]) -> GoldRow:
    if isinstance(gold.row, dict):
        row = msgspec.json.decode(whole_row(msgspec.json.encode(gold.row)))
    elif 1 <= gold.row <= len(examples):
        row = examples[gold.row - 1]
    else:
        raise UsageError(f"{where}: `row` is {gold.row}, but data/example.jsonl has {len(examples)} rows")
    if issubclass(cls, TextEnvironment):
        gold = msgspec.structs.replace(gold, reply=[_as_step(action) for action in gold.actions])
    low, high = cls.reward_range
    reward = high if gold.reward is None else gold.reward
    if not math.isfinite(reward):
        raise UsageError(f"{where}: the worker declares no `reward_range`; give the reply's `reward`")
    return GoldRow(where, gold, row, reward, max(low, 0.0) if gold.floor is None else gold.floor)


def _as_step(action: Action) -> Action:
    """Return an action of an episode: a text is said to the environment."""
    return action if action.call is not None else Action(call=ActionCall("step", {"action": action.text}))


async def play(actions: Iterable[Action], session: HarnessSession, *, has_tools: bool) -> dict[str, Any]:
    """Return the response of a policy that takes these actions in a session.

    Args:
        has_tools: whether to execute calls and add their outputs.

    Raises:
        RolloutError: a call has no result.
    """
    items: list[str | Mapping[str, Any]] = []
    for number, action in enumerate(actions, 1):
        if action.call is None:
            items.append(action.text or "")
            continue
        items.append(function_call(action.call.name, action.call.arguments, f"call_{number}"))
        if has_tools:
            result = await session.call(action.call.name, action.call.arguments)
            items.append({"type": "function_call_output", "call_id": f"call_{number}", "output": result.output})
    return reply(*items)
