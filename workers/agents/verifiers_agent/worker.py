"""verifiers_agent: environments of the library verifiers, which have their own loops, tools and rewards."""

from __future__ import annotations

import math
import signal
from typing import Any, ClassVar

import pydantic

import gymq
from gymq import responses
from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.protocol.messages import FailureClass, Stage


class TaskRow(gymq.Row):
    task_idx: int
    vf_env_id: str = ""
    answer: str = ""
    task: str = "default"
    example_id: int = 0
    info: dict[str, Any] = pydantic.Field(default_factory=dict)


class VerifiersAgent(gymq.Agent):
    """An environment of verifiers plays the episode and scores it; the model is asked through gymq."""

    class Options(gymq.AgentOptions):
        without_meaning: ClassVar = gymq.AgentOptions.without_meaning | {
            "group_size",
            "max_concurrent_generation",
            "max_concurrent_scoring",
        }
        model_server: gymq.Reference
        model_name: str = ""
        vf_env_id: str = ""  # for rows that name none
        vf_env_args: dict[str, Any] = pydantic.Field(default_factory=dict)  # for its loader
        max_tokens: pydantic.PositiveInt = 8192
        temperature: float = 1.0
        top_p: float = 1.0

    async def start(self) -> None:
        try:
            import verifiers
            from gymq.workers.agents.verifiers_agent.client import RolloutClient
        except ModuleNotFoundError as error:
            text = f'{error.name} is not installed: pip install "gymq[verifiers]", or `isolated: true`'
            raise gymq.OptionsError(f"{self.name}: {text}") from None
        self._load, self._client = verifiers.load_environment, RolloutClient
        self._environments: dict[str, Any] = {}
        if self.options.vf_env_id:
            try:
                self._environment(self.options.vf_env_id)
            except gymq.ComponentFailed as error:
                raise gymq.OptionsError(f"{self.name}: {error.message}") from None

    async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
        row = _row_of(rollout)
        env_id = row.vf_env_id or self.options.vf_env_id
        if not env_id:
            raise gymq.InvalidTask("vf_env_id: neither the row nor the agent's options name an environment")
        env = self._environment(env_id)
        client = self._client(rollout)
        state = await env.rollout(_input_of(row, rollout), client, self.options.model_name, self._sampling(rollout))
        _check(state, client, env_id)
        rollout.output = list(await client.items(state))
        if self.options.skip_verification:
            return gymq.Verdict(self.options.skip_verification_reward, verification_skipped=True)
        await env.rubric.score_rollout(state)
        await env.rubric.cleanup(state)
        reward = state["reward"]
        if not isinstance(reward, int | float) or not math.isfinite(reward):
            raise gymq.RolloutError(FailureClass.VERIFIER_FAILED, f"{env_id} returned the reward {reward!r}")
        scored = {"reward": float(reward), "metrics": state["metrics"] or {}}
        labels = {"id": f"verifiers-{env_id}-{row.task_idx}", "created_at": 0, "env_id": env_id}
        rollout.response = rollout.response | labels | {"group_id": str(row.task_idx)} | scored
        return gymq.Verdict(float(reward))

    def _environment(self, env_id: str) -> Any:
        """Return an environment by its id, loaded once in this process."""
        if env_id not in self._environments:
            # Beside a default environment they are that one's; without one they are for those that the rows name.
            arguments = self.options.vf_env_args if self.options.vf_env_id in ("", env_id) else {}
            # The library wants to be loaded in the main thread, and takes the signals that end a worker.
            kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            try:
                self._environments[env_id] = self._load(env_id, **arguments)
            except Exception as error:
                text = f"the environment {env_id} cannot be loaded: {error}"
                raise gymq.ComponentFailed(text) from None
            finally:
                for number, handler in kept.items():
                    signal.signal(number, handler)
        return self._environments[env_id]

    def _sampling(self, rollout: gymq.Rollout) -> dict[str, Any]:
        own = {name: getattr(self.options, name) for name in ("temperature", "top_p")}
        given = {name: rollout.params[name] for name in own if rollout.params.get(name) is not None}
        return {"max_tokens": self.options.max_tokens, **own, **given}


def _row_of(rollout: gymq.Rollout) -> TaskRow:
    try:
        return TaskRow.model_validate_json(rollout.row)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        raise gymq.InvalidTask(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None


def _input_of(row: TaskRow, rollout: gymq.Rollout) -> dict[str, Any]:
    route = {} if row.task == "default" else {"env_id": row.task}  # in a group of environments
    return {"prompt": _prompt(rollout), "answer": row.answer, "example_id": row.example_id, "info": route | row.info}


def _prompt(rollout: gymq.Rollout) -> list[dict[str, Any]]:
    """Role and content of the row's messages, as chat messages; the library knows no developer."""
    said = [item for item in rollout.input if responses.is_message(item)]
    try:
        messages = responses_to_chat({"input": said})["messages"]
    except responses.ResponsesError as error:
        raise gymq.InvalidTask(f"responses_create_params.{error}") from None
    roles = {"developer": "system"}
    return [
        {"role": roles.get(message["role"], message["role"]), "content": message["content"]} for message in messages
    ]


def _check(state: dict[str, Any], client: Any, env_id: str) -> None:
    """An episode that an error ended has no reward, unless the error is an empty reply, which is the model's own doing.

    Raises:
        Exception: as raised by the model call.
        RolloutError: COMPONENT_FAILED, the environment failed.
    """
    error = state.get("error")
    if error is None or client.said_nothing(error):
        return
    if client.failed is not None:
        raise client.failed
    cause = error.__cause__ or error
    text = f"{env_id} ended with {type(cause).__name__}: {cause}"
    raise gymq.RolloutError(FailureClass.COMPONENT_FAILED, text, stage=Stage.AGENT)
