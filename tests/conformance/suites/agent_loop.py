"""The simple agent against a scripted model, scripted tools and a scripted verifier.

Every request that leaves the agent is recorded by the name that its HTTP counterpart has, so that the recorded traces
apply to calls over a queue.
"""

import asyncio
import json
from typing import Any

from gymq.workers.agents.simple_agent.worker import SimpleAgent

from gymq.agent import Rollout, Session
from gymq.failures import InvalidTask, RolloutError
from gymq.protocol import subjects
from gymq.protocol.messages import (
    Call,
    FailureClass,
    Generate,
    Generated,
    Message,
    Seed,
    Seeded,
    ToolCall,
    ToolResult,
    Verified,
    Verify,
)

from ..comparison import Mismatch
from ..plain import plain

MODEL, RESOURCES = "policy_model", "env"
SESSION = subjects.SESSION.of("worker", "session")
NO_SUCH_TOOL = {"status": 404, "body": '{"detail":"Not Found"}'}
DEFAULTS_BESIDE_INPUT = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
TIMEOUT_S = 60.0


async def run(case_input: dict[str, Any]) -> dict[str, Any]:
    script = Script(case_input)
    answer = await _status_and_final(script, case_input)
    return answer | {"trace": script.trace, "unused_model_replies": len(script.model)}


def normalise(value: Any) -> Any:
    """Drop what a queue does not have (cookies) and what says nothing (defaults beside `input`, `type` of messages)."""
    if isinstance(value, list):
        return [normalise(element) for element in value]
    if not isinstance(value, dict):
        return value
    dropped = {"cookies"} if {"to", "path"} <= value.keys() else set()
    if "input" in value:
        dropped |= {key for key, default in DEFAULTS_BESIDE_INPUT.items() if value.get(key) == default}
    if "role" in value and value.get("type") == "message":
        dropped.add("type")
    return {key: normalise(member) for key, member in value.items() if key not in dropped}


async def _status_and_final(script: "Script", case_input: dict[str, Any]) -> dict[str, Any]:
    references = {
        "model_server": {"type": "responses_api_models", "name": MODEL},
        "resources_server": {"type": "resources_servers", "name": RESOURCES},
    }
    agent = SimpleAgent({**references, **case_input.get("config", {})})
    request = case_input["request"]
    only_converse = case_input.get("endpoint") == "/v1/responses"
    row = {"responses_create_params": request} if only_converse else request
    try:
        rollout = Rollout(
            script,
            rollout_id="case",
            row=json.dumps(row).encode(),
            options=agent.options,
            deadline=asyncio.get_running_loop().time() + TIMEOUT_S,
        )
        if only_converse:
            async with Session(rollout, RESOURCES, seeded=False) as session:
                await agent.converse(rollout, session)
            return {"status": 200, "final": rollout.response}
        verdict = await agent.run(rollout)
        final = {**row, "response": rollout.response, **verdict.fields, "reward": verdict.reward}
    except InvalidTask:
        return {"status": 422}
    except RolloutError:
        return {"status": 500}
    if final["response"] == script.verified_response:
        final["response"] = "@verify.response"
    return {"status": 200, "final": final}


class Script:
    """Answers the agent's requests from the case and records them."""

    def __init__(self, case_input: dict[str, Any]) -> None:
        self.trace: list[dict[str, Any]] = []
        self.model: list[dict[str, Any]] = list(case_input["model"])
        self.verified_response: Any = None
        self._tools = {name: list(replies) for name, replies in case_input.get("tools", {}).items()}
        self._seed = case_input.get("seed", {})
        self._verify = case_input.get("verify", {})

    async def call(self, subject: str, request: Call) -> Message:
        if isinstance(request, Generate):
            _check_subject(subject, subjects.MODEL.of(MODEL))
            return self._generate(request)
        if isinstance(request, Seed):
            _check_subject(subject, subjects.SEED.of(RESOURCES))
            return self._open(request)
        _check_subject(subject, SESSION)
        if isinstance(request, ToolCall):
            return self._call_tool(request)
        assert isinstance(request, Verify)
        return self._score(request)

    async def send(self, subject: str, _request: Call) -> None:
        _check_subject(subject, SESSION)

    def _open(self, request: Seed) -> Seeded:
        if request.row is not None:
            self._record("resources", "/seed_session", json.loads(request.row))
            _refuse_unless_ok(self._seed, FailureClass.VERIFIER_FAILED)
        return Seeded(session=SESSION)

    def _generate(self, request: Generate) -> Generated:
        self._record("model", "/v1/responses", request.params)
        if not self.model:
            raise RolloutError(FailureClass.MODEL_FAILED, "the model has no further replies")
        scripted = self.model.pop(0)
        _refuse_unless_ok(scripted, FailureClass.MODEL_FAILED)
        return Generated(response=scripted["body"])

    def _call_tool(self, request: ToolCall) -> ToolResult:
        self._record("resources", f"/{request.name}", json.loads(request.arguments))
        replies = self._tools.get(request.name, [NO_SUCH_TOOL])
        scripted = replies.pop(0) if len(replies) > 1 else replies[0]
        body = scripted.get("body", "")
        output = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        return ToolResult(output=output, status=scripted.get("status", 200))

    def _score(self, request: Verify) -> Verified:
        body = {**json.loads(request.row), "response": request.response}
        self._record("resources", "/verify", body)
        self.verified_response = plain(request.response)
        _refuse_unless_ok(self._verify, FailureClass.VERIFIER_FAILED)
        return Verified(reward=self._verify.get("reward", 1.0), verdict=self._verify.get("extra", {}))

    def _record(self, to: str, path: str, body: Any) -> None:
        # A copy: the agent goes on to extend the lists that the body refers to.
        self.trace.append({"to": to, "path": path, "body": plain(body)})


def _refuse_unless_ok(scripted: dict[str, Any], failure_class: FailureClass) -> None:
    status = scripted.get("status", 200)
    if status // 100 != 2:
        # For good: that some failures are tried again is no part of the loop.
        raise RolloutError(failure_class, f"status {status}: {scripted.get('body')}", retryable=False)


def _check_subject(subject: str, expected: str) -> None:
    if subject != expected:
        raise Mismatch([f"a request went to {subject}, expected {expected}"])
