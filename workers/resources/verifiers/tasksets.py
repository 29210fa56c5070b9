"""Tasksets of verifiers: their agents run in this process, and ask the policy of the rollout."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import verifiers.v1 as vf
from gymq.workers.resources.verifiers import harness
from verifiers.v1.clients import Client, EvalClient
from verifiers.v1.interception import InterceptionServer
from verifiers.v1.session import RolloutSession

import gymq
from gymq.ext.gateway import Gateway
from gymq.ext.http.model_calls import Ask
from gymq.protocol.messages import FailureClass, Stage

HARNESS = "gymq_in_process"
MOST_CALLS = 1024  # at once: they are the library's own, and the judge's are those of all rollouts
BUILT_IN = ("bash", "null")  # the library's own loops, for agents that ask for no other

_client: ContextVar[Client] = ContextVar("client")


class PolicyInterception(InterceptionServer):
    """The library's server for model calls, which asks the policy of the rollout that a session is part of."""

    def register(self, session: RolloutSession) -> tuple[str, str]:
        secrets: tuple[str, str] = super().register(session)
        session.client = _client.get()
        return secrets


class TasksetEnvironment:
    """A taskset with its environment; it is served while this is used."""

    def __init__(self, gateway: Gateway, environment: vf.Env) -> None:
        self._gateway = gateway
        self._environment = environment
        self._context = vf.ModelContext(model="policy", client=vf.EvalClientConfig())

    def tasks(self) -> Iterator[Any]:
        return iter(self._environment.taskset)

    async def play(self, task: Any, policy: gymq.Policy) -> tuple[float, dict[str, Any]]:
        async with self._gateway.admit("policy", policy.ask, at_once=MOST_CALLS) as admission:
            client = EvalClient(vf.EvalClientConfig(base_url=admission.openai_url))
            client.api_key = admission.api_key
            _client.set(client)
            try:
                episode = await self._environment.run_episode(task, self._context)
            finally:
                await client.close()
        self._check(episode)
        trained = [trace for trace in episode.traces if trace.agent.trainable] or episode.traces
        reward = sum(trace.reward for trace in trained) / len(trained)
        return reward, _fields(episode, trained)

    def _check(self, episode: vf.Episode) -> None:
        """Check that the episode is a valid result."""
        if self._environment.complete(episode) and episode.traces:
            return
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        text = "; ".join(f"{error.type}: {error.message}" for error in errors[-3:]) or "it has no trace"
        scoring = any(error.type == "TaskError" for error in errors)
        failure = FailureClass.VERIFIER_FAILED if scoring else FailureClass.COMPONENT_FAILED
        raise gymq.RolloutError(failure, f"{episode.env.id} failed: {text}", stage=Stage.AGENT)


def _fields(episode: vf.Episode, trained: list[vf.Trace]) -> dict[str, Any]:
    parts = {name: reward.value for name, reward in trained[0].rewards.items() if reward is not None}
    fields: dict[str, Any] = {
        "metrics": {name: value for name, value in trained[0].metrics.items() if value is not None},
        "stop_condition": trained[0].stop_condition,
    }
    if len(episode.traces) > 1:
        fields["agents"] = [{"name": trace.agent.name, "reward": trace.reward} for trace in episode.traces]
    return fields | ({"reward_components": parts} if parts else {})


@asynccontextmanager
async def served(
    taskset: str, arguments: dict[str, Any], settings: dict[str, Any], judge: Ask | None
) -> AsyncIterator[TasksetEnvironment]:
    """Load a taskset with its environment, and serve its shared tools while the block runs.

    Args:
        arguments: configuration of the taskset.
        settings: configuration of the environment: its `id`, its agents by name, limits.
        judge: answers judges that name no endpoint; None: the library's own endpoint does.

    Raises:
        Exception: it cannot be loaded.
    """
    sys.modules[HARNESS] = harness
    async with Gateway() as gateway, _judged(gateway, judge):
        environment = vf.load_environment(_config(_plugin(taskset), arguments, settings))
        async with environment.serving():
            servers = environment._shared_tools.values()
            secrets = tuple(server.state_secret for server in servers if server.state_secret)
            async with PolicyInterception(state_service_secrets=secrets) as interception:
                environment._interception = interception
                yield TasksetEnvironment(gateway, environment)


def _plugin(taskset: str) -> str:
    """Return the name by which the library finds a taskset: a plugin of it is a module at the top."""
    if "." not in taskset or "/" in taskset:
        return taskset
    name = taskset.replace(".", "_")
    sys.modules[name] = importlib.import_module(taskset)
    return name


def _config(taskset: str, arguments: dict[str, Any], settings: dict[str, Any]) -> vf.EnvConfig:
    """Return the configuration, with agents that run here unless it says otherwise."""
    given = {**settings, "taskset": {**arguments, "id": taskset}}
    own_harness = vf.default_harness_id(taskset) not in BUILT_IN
    for role, field in vf.env_config_type(taskset, str(settings.get("id") or "")).model_fields.items():
        if not isinstance(field.default, vf.AgentConfig):
            continue
        agent = {"runtime": {"type": "subprocess"}, **(given.get(role) or {})}
        wants = field.default.harness
        if "harness" not in agent and (wants.id in BUILT_IN if wants is not None else not own_harness):
            agent["harness"] = {"id": HARNESS}
        given[role] = agent
    return vf.resolve_env_config(given)


@asynccontextmanager
async def _judged(gateway: Gateway, judge: Ask | None) -> AsyncIterator[None]:
    if judge is None:
        yield
        return
    async with gateway.admit("judge", judge, at_once=MOST_CALLS) as admission:
        # Where the library looks for the endpoint of a judge.
        os.environ |= {"PRIME_INFERENCE_URL": admission.openai_url, "PRIME_API_KEY": admission.api_key}
        yield
