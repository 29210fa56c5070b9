"""The verifiers of a configuration in this process, for responses that already exist.

A response is all that is needed as long as a verdict depends on nothing else. Where tools change the state of a
session, the calls in the response are repeated in a fresh one; that is only done for workers that declare themselves
`replayable`, and every output must be the one in the response.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterator
from typing import Any

from gymq.agent import RESERVED_TOOL_NAMES
from gymq.authoring import CurrentCall, current_call
from gymq.config import Config
from gymq.errors import UsageError
from gymq.execution.loading.building import build
from gymq.execution.sessions import LocalResources
from gymq.failures import InvalidTask, RolloutError, no_such_tool
from gymq.processes import KillableProcesses
from gymq.protocol.messages import FailureClass, Seed, Stage, ToolCall, ToolResult, Verified, Verify
from gymq.resources import ModelCaller, Resources, tool_output
from gymq.responses import InvalidRequest
from gymq.responses.schema import check_items

VERIFY_TIMEOUT_S = 600.0  # for one response, its replayed calls included


class Verifiers:
    """The resources workers that the agents of a configuration are verified by. Use it with `async with`."""

    def __init__(self, config: Config, *, models: ModelCaller, only: str | None = None) -> None:
        """Take the configuration; `prepare` builds and starts its workers.

        Args:
            models: answers a verifier's requests to a judge.
            only: the resources instance that verifies everything, whatever the agent.
        """
        self._config = config
        self._models = models
        self._only = only
        self._processes = KillableProcesses()
        self._workers: dict[str, LocalResources] = {}

    async def __aenter__(self) -> Verifiers:
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._workers.values():
            await worker.resources.stop()
        self._processes.close()

    async def prepare(self, agent: str) -> None:
        """Build and start the worker for an agent's rollouts.

        Raises:
            UsageError: no worker belongs to the agent, or it cannot verify from a response.
            ConfigError, WorkerNotFound, OptionsError: the worker cannot be built.
        """
        name = self._resources_of(agent)
        if name in self._workers:
            return
        found = self._config.instance(name)
        author = build(found)
        assert isinstance(author, Resources)
        if author.stateful and not author.replayable:
            raise UsageError(
                f"{name} keeps a state for each rollout, which a stored response does not contain, and is not declared "
                "`replayable`: its rollouts cannot be verified again"
            )
        author.models = self._models
        worker = LocalResources(author, self._processes)
        await author.start()
        self._workers[name] = worker

    def worker_for(self, agent: str) -> LocalResources:
        return self._workers[self._resources_of(agent)]

    def _resources_of(self, agent: str) -> str:
        if self._only is not None:
            return self._only
        found = self._config.instance(agent)
        if found.kind != "agents":
            raise UsageError(f"{agent} is not an agent of the configuration but one of its {found.kind}")
        reference = found.options.get("resources_server")
        if not isinstance(reference, dict):
            raise UsageError(f"the agent {agent} has no `resources_server`, so its rollouts cannot be verified")
        return str(reference["name"])

    @property
    def only_agent(self) -> str | None:
        """The agent of rollouts that name none, if there is just one."""
        return self._config.only_agent


async def verify_again(worker: LocalResources, rollout: str, row: bytes, response: dict[str, Any]) -> Verified:
    """Verify a stored response again, in a session of its own in which its calls are repeated.

    Raises:
        RolloutError: there is no verdict; `SESSION_LOST` if a call gave another output than the response holds,
            `DEADLINE_EXCEEDED` after `VERIFY_TIMEOUT_S`.
    """
    deadline = asyncio.get_running_loop().time() + VERIFY_TIMEOUT_S
    current_call.set(CurrentCall(rollout, deadline))
    try:
        async with asyncio.timeout_at(deadline):
            return await _verified(worker, rollout, row, response)
    except TimeoutError:
        text = f"not verified within {VERIFY_TIMEOUT_S:g} s"
        raise RolloutError(FailureClass.DEADLINE_EXCEEDED, text, stage=Stage.VERIFY) from None


async def _verified(worker: LocalResources, rollout: str, row: bytes, response: dict[str, Any]) -> Verified:
    seeded = await worker.open(Seed(rollout=rollout, timeout_s=VERIFY_TIMEOUT_S, row=row), "*")
    if seeded.session is None:
        verified = await worker.without_session(_verify_request(rollout, 1, row, response))
    else:
        number = 0
        try:
            for number, (call, output) in enumerate(_calls_made(response), 1):
                await _replay(worker, seeded.session, rollout, number, call, output)
            verified = await worker.in_session(seeded.session, _verify_request(rollout, number + 1, row, response))
        finally:
            await worker.close(seeded.session)
    assert isinstance(verified, Verified)
    return verified


async def _replay(
    worker: LocalResources, session: str, rollout: str, number: int, call: dict[str, Any], output: str
) -> None:
    request = ToolCall(
        rollout=rollout, timeout_s=VERIFY_TIMEOUT_S, number=number, name=call["name"], arguments=call["arguments"]
    )
    result = await worker.in_session(session, request)
    assert isinstance(result, ToolResult)
    if result.output != output:
        text = f"call {number} ({call['name']}) gave another output than in the response, so the state is another too"
        raise RolloutError(FailureClass.SESSION_LOST, text, stage=Stage.VERIFY)


def _calls_made(response: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the function calls that reached the session, in the order of their answers, with their outputs."""
    try:
        items = check_items(response.get("output"), "output")
    except InvalidRequest as error:
        raise InvalidTask(f"the response to verify does not fit: {error}").at(Stage.VERIFY) from None
    waiting: dict[Any, deque[dict[str, Any]]] = {}  # by id, which some models use again in each turn
    for item in items:
        if item.get("type") == "function_call":
            waiting.setdefault(item["call_id"], deque()).append(item)
        elif item.get("type") == "function_call_output" and waiting.get(item.get("call_id")):
            call = waiting[item["call_id"]].popleft()
            if _was_run(call, item["output"]):
                yield call, item["output"]


def _was_run(call: dict[str, Any], output: Any) -> bool:
    """Return whether a tool was run: not if its arguments are not JSON, nor if the model may not call it."""
    try:
        json.loads(call.get("arguments") or "")
    except (ValueError, RecursionError):
        return False
    name = call["name"]
    return name not in RESERVED_TOOL_NAMES and output != tool_output({"error": no_such_tool(name).message})


def _verify_request(rollout: str, number: int, row: bytes, response: dict[str, Any]) -> Verify:
    return Verify(rollout=rollout, timeout_s=VERIFY_TIMEOUT_S, number=number, row=row, response=response)
