"""TextEnvironment: an environment that is played turn by turn, with `reset` and `step` as in Gymnasium."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import pydantic

from gymq import responses
from gymq.failures import InvalidTask, ToolError, failing_as
from gymq.protocol.messages import FailureClass, Stage
from gymq.resources import Resources, RowT, Tool, Verdict, VerifyRequest, awaited

StepResult: TypeAlias = tuple[str, float, bool, bool, dict[str, Any]]
"""What a step returns: observation, reward, terminated, truncated, info."""

_OBSERVED = "a text (str): what the model reads next"


@dataclass
class Episode:
    """One rollout in a `TextEnvironment`, the state of its session.

    Attributes:
        environment: a copy of the worker's object, on which `reset` and `step` run.
        observation: the result of `reset`.
        is_begun: whether an agent has read that observation.
        is_replayed: whether no agent has: a verification plays the response's actions.
        reward: the sum of the rewards of all steps.
        num_steps: number of accepted actions so far.
        terminated: whether the environment has reached its end.
        truncated: whether the episode was cut off before.
        info: the info of the last step.
    """

    environment: TextEnvironment[Any]
    observation: str = ""
    is_begun: bool = False
    is_replayed: bool = False
    reward: float = 0.0
    num_steps: int = 0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)


async def _first(worker: TextEnvironment[Any], state: Episode) -> dict[str, Any]:
    state.is_begun = True
    return {"observation": state.observation}


async def _act(worker: TextEnvironment[Any], state: Episode, action: str) -> dict[str, Any]:
    """Take one action, for the agent: the observation, the reward, and whether the episode is over."""
    if state.terminated or state.truncated:
        raise ToolError(400, "the episode is over")
    state.is_begun = True
    with failing_as(FailureClass.VERIFIER_FAILED, f"{worker.name} failed to step", Stage.TOOL):
        try:
            result = await awaited(state.environment.step(action))
        except ToolError as error:
            return _answer(error.message, 0.0, False, False, {})
        observation, reward, state.terminated, state.truncated, state.info = _checked(result)
    state.num_steps += 1
    state.reward += reward
    return _answer(observation, reward, state.terminated, state.truncated, state.info)


async def _replay(worker: TextEnvironment[Any], episode: Episode, output: list[Any]) -> None:
    turns = _turns(output)
    observation = (await _first(worker, episode))["observation"]
    for number, (said, action) in enumerate(turns, 1):
        if said != observation:
            text = "the response is not a conversation with it, or it answers differently by now"
            raise InvalidTask(f"{worker.name}: {text}; `gymnasium_agent` plays it")
        if number < len(turns):  # a last message without an observation was cut short, so it is not an action
            observation = (await _act(worker, episode, action))["observation"]


class TextEnvironment(Resources[RowT, Episode]):
    """An environment that is played turn by turn: define `reset` and `step`; `gymnasium_agent` plays it.

    Each rollout has a copy of the object, so `reset` and `step` may keep the episode in attributes of `self`. What
    `start` puts there is shared by all.

    The reward of a rollout is the sum of the rewards of its steps.

    Attributes:
        random: generator for the episode; rollouts of the same row draw the same numbers.
    """

    # The same actions lead to the same observations if `self.random` is the only source of randomness. An environment
    # with others sets False: its rollouts then start over when their worker dies.
    replayable = True
    played_by = "gymnasium_agent"

    random: random.Random

    # The interface of `gymnasium_agent`, distinct from the author's methods `reset` and `step`.
    tools: ClassVar[dict[str, Tool]] = {
        "reset": Tool("reset", _first, True, pydantic.create_model("reset_arguments"), offered=False),
        "step": Tool("step", _act, True, pydantic.create_model("step_arguments", action=(str, ...)), offered=False),
    }

    def reset(self, row: RowT) -> str | Awaitable[str]:
        """Begin an episode; return the first observation. It may be `async`."""
        raise NotImplementedError

    def step(self, action: str) -> StepResult | Awaitable[StepResult]:
        """Take the model's message as an action. It may be `async`.

        Returns:
            The next observation; the reward of this step; whether the episode has reached its end; whether it was cut
            off before; further JSON values, which become the field `info` of the verdict.

        Raises:
            ToolError: the action is not counted; the model reads the message and may act again.
            ComponentFailed: a service that the environment needs did not answer.
        """
        raise NotImplementedError

    async def open(self, row: Any) -> Episode:
        """Begin an episode on a copy of this object."""
        environment = object.__new__(type(self))
        vars(environment).update(vars(self))
        environment.random = random.Random(_seed_of(row))
        observation = await awaited(environment.reset(row))
        if not isinstance(observation, str):
            raise TypeError(f"reset must return {_OBSERVED}, not {type(observation).__name__}")
        return Episode(environment, observation)

    async def verify(self, request: VerifyRequest[RowT, Episode]) -> Verdict:
        """Return the sum of the rewards. In a session that was not played, the response's own actions are played.

        Raises:
            InvalidTask: the response is not a conversation with this environment.
        """
        episode = request.state
        if episode is None:
            raise InvalidTask(f"{self.name} is verified in the session in which it was played")
        if episode.is_replayed:  # by a verification that may have failed on the way
            vars(episode).update(vars(await self.reseed(episode, request.row)))
        if not episode.is_begun:
            episode.is_replayed = True
            await _replay(self, episode, request.response["output"])
        return Verdict(
            episode.reward,
            num_steps=episode.num_steps,
            terminated=episode.terminated,
            truncated=not episode.terminated,
            info=episode.info,
        )


def _answer(observation: str, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]) -> dict[str, Any]:
    return {
        "observation": observation,
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
        "info": info,
    }


def _checked(result: Any) -> StepResult:
    """Return the result of a step with plain types."""
    if not isinstance(result, tuple) or len(result) != 5:
        raise TypeError(f"step must return (observation, reward, terminated, truncated, info), not {result!r:.200}")
    observation, reward, terminated, truncated, info = result
    if not isinstance(observation, str):
        raise TypeError(f"the observation of a step must be {_OBSERVED}, not {type(observation).__name__}")
    if not isinstance(info, dict):
        raise TypeError(f"the info of a step must be a dict, not {type(info).__name__}")
    reward = Verdict(reward).reward
    if not math.isfinite(reward):
        raise ValueError(f"the reward of a step must be a finite number, not {reward!r}")
    return observation, reward, bool(terminated), bool(truncated), info


def _seed_of(row: Any) -> int:
    fields = row.model_dump(mode="json")
    task = {name: value for name, value in fields.items() if not name.startswith("_ng_")}
    text = json.dumps(task, sort_keys=True).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())


def _turns(output: list[Any]) -> list[tuple[str, str]]:
    turns = [("", "")]
    for position, item in enumerate(output):
        if not responses.is_message(item):
            continue
        if item.get("role") == "assistant":
            said, action = turns.pop()
            turns.append((said, action + responses.output_text({"output": [item]})))
        elif position == 0:
            turns = [(str(item["content"]), "")]
        else:
            turns.append((str(item["content"]), ""))
    return turns
