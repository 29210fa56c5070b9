"""aviary_agent: the calls of a reply are a step in an environment, which says what is seen next and when it ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pydantic

import gymq
from gymq import responses
from gymq.protocol.messages import FailureClass

Item = Mapping[str, Any]

STATE_MARK = "is_env_state"  # of the resources worker, on an observation that shows the whole state
HIDDEN_STATE = "[Previous environment state - hidden]"
CALL_A_TOOL = "You called no tool. Go on by calling at least one of your tools."


class AviaryAgent(gymq.Agent):
    """Model and environment in turn, until the environment says that the episode is over."""

    class Options(gymq.AgentOptions):
        resources_server: gymq.Reference
        model_server: gymq.Reference
        max_steps: pydantic.NonNegativeInt | None = None  # model calls; None or 0: no limit
        max_total_sequence_length: int | None = None  # existing configurations have it; nothing depends on it
        done_if_no_tool_calls: bool = True
        collapse_old_env_states: bool = False
        old_env_state_message: str = HIDDEN_STATE
        return_transitions: bool = True

    async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
        group = str(_task_idx(rollout.row))
        async with rollout.session() as session:
            episode = await _ask(session, "reset", {})
            if not episode["obs"]:
                text = f"the environment {episode['env_id']} shows nothing at its beginning"
                raise gymq.RolloutError(FailureClass.COMPONENT_FAILED, text)
            rollout.params = {**rollout.params, "tools": episode["tools"]}
            said, states = await self._play(rollout, session, episode)
            labels = {"env_id": episode["env_id"], "group_id": group}
            flat = rollout.response | labels | {"contains_transitions": False, "output": said}
            rollout.response = flat
            if self.options.return_transitions:
                rollout.response = flat | {"contains_transitions": True, "output": states}
            if self.options.skip_verification:
                return gymq.Verdict(self.options.skip_verification_reward, verification_skipped=True)
            return await session.verify(flat)

    async def _play(
        self, rollout: gymq.Rollout, session: gymq.Session, episode: dict[str, Any]
    ) -> tuple[list[Item], list[list[Item]]]:
        """Return the episode: what was said and observed in order, and the state after each step."""
        state: list[Item] = [*rollout.input, *episode["obs"]]
        said: list[Item] = []
        states: list[list[Item]] = []
        for _ in rollout.steps(self.options.max_steps):
            rollout.input, rollout.output = [_unmarked(item) for item in state], []
            reply = await rollout.respond()
            said += reply.output
            silent = reply.has_message and not reply.function_calls
            if silent and not self.options.done_if_no_tool_calls and not reply.overflowed:
                seen, done = [responses.user_message(CALL_A_TOOL)], False
            elif silent or reply.incomplete:
                seen, done = [], True
            else:
                action = [_action(call) for call in reply.function_calls]
                step = await _ask(session, "step", {"action": action, "env_id": episode["env_id"]})
                seen, done = step["obs"], step["done"]
                said += [_unmarked(item) for item in seen]
            if self.options.collapse_old_env_states and any(item.get(STATE_MARK) for item in seen):
                old = responses.user_message(self.options.old_env_state_message)
                state = [old if item.get(STATE_MARK) else item for item in state]
            state = [*state, *reply.output, *seen]
            states.append([_unmarked(item) for item in state])
            if done:
                break
        return said, states


class _Task(msgspec.Struct):
    task_idx: int


def _task_idx(row: bytes) -> int:
    """Number written as text is a number, as for the resources worker."""
    try:
        return msgspec.json.decode(row, type=_Task, strict=False).task_idx
    except msgspec.ValidationError as error:
        raise gymq.InvalidTask(f"row: {error}") from None


def _action(call: Item) -> dict[str, Any]:
    # Missing arguments are not JSON, which the environment reports to the model.
    return {"call_id": call["call_id"], "name": call["name"], "arguments": call.get("arguments") or ""}


def _unmarked(item: Item) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != STATE_MARK}


async def _ask(session: gymq.Session, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a call of the environment's interface, made by the agent itself."""
    output = (await session.call(responses.function_call(name, arguments, call_id=name)))["output"]
    assert isinstance(output, str)
    answer: dict[str, Any] = json.loads(output)
    if "error" in answer:
        raise gymq.RolloutError(FailureClass.COMPONENT_FAILED, f"the environment refused {name}: {answer['error']}")
    return answer
