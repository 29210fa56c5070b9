"""No reply or refusal of an engine loses a rollout for good: it is scored, cut and scored, or retried."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from gymq.workers.agents.simple_agent.worker import SimpleAgent
from gymq.workers.models.openai_model import endpoint
from gymq.workers.models.openai_model.tests.mock_server import Answer, Asked, MockServer, as_json, starting
from gymq.workers.models.openai_model.tests.replies import completion, response
from gymq.workers.models.openai_model.worker import OpenAIModel
from gymq.workers.models.vllm_model.tests.examined import is_examination, next_token
from gymq.workers.models.vllm_model.worker import VLLMModel

import gymq
from gymq.ext.gateway import Gateway
from gymq.ext.gateway.gateway import asks_through
from gymq.protocol import packing
from gymq.protocol.codec import encode
from gymq.protocol.messages import BadMessage, Generated
from gymq.responses import output_text
from gymq.testing.agent_harness import AgentHarness

from .mutations import changed, changed_bytes
from .programs import PROGRAMS

OVERFLOWS = ["This model's maximum context length is 100 tokens", "the request exceeds the available context size"]
REFUSALS = ["messages[1]: invalid arguments", "Expecting ',' delimiter: line 1", "unprocessable", ""]


class Sums(gymq.Resources[gymq.Row]):
    """The reward is 1 if the answer is 4."""

    @gymq.tool
    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @gymq.tool
    async def look(self) -> str:
        """Look around."""
        return "2 and 2"

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        return gymq.Verdict(float("4" in output_text(request.response)))


ROW = {
    "responses_create_params": {
        "input": [{"role": "user", "content": "What is 2 + 2?"}],
        "tools": [
            {
                "type": "function",
                "name": "add",
                "strict": True,
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                    "required": ["a", "b"],
                    "additionalProperties": False,
                },
            },
            {"type": "function", "name": "look", "strict": False, "parameters": {"type": "object", "properties": {}}},
        ],
    }
}
CALLS = [[("add", '{"a": 2, "b": 2}'), ("look", "{}")], [("look", ""), ("add", '{"a": 2, "b": ')]]


def in_responses(turn: int) -> dict[str, Any]:
    """The reply of a turn as a Responses object."""
    if turn >= len(CALLS):
        return response("It is 4.")
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    calls = [
        {"type": "function_call", "id": f"fc_{index}", "call_id": f"c{index}", "name": name, "arguments": arguments}
        for index, (name, arguments) in enumerate(CALLS[turn])
    ]
    return response(thought, "I look.", *calls)


def in_chat(turn: int) -> dict[str, Any]:
    """The reply of a turn as a chat completion with all that engines say of tokens."""
    if turn >= len(CALLS):
        whole = completion("It is 4.")
    else:
        calls = [
            {"id": f"c{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for index, (name, arguments) in enumerate(CALLS[turn])
        ]
        whole = completion("I look.", finish_reason="tool_calls", reasoning_content="hm", tool_calls=calls)
    entries = [{"token": f"token_id:{one}", "logprob": -0.5, "top_logprobs": []} for one in (5, 6)]
    whole["choices"][0] |= {"logprobs": {"content": entries}, "token_ids": [5, 6]}
    return {**whole, "prompt_token_ids": [1, 2, 3]}


def in_completions(_turn: int) -> dict[str, Any]:
    """A reply as a completion of a text."""
    log_probs = {"tokens": ["token_id:5", "token_id:6"], "token_logprobs": [-0.5, -0.5]}
    choice = {"index": 0, "text": "It is 4.", "finish_reason": "stop", "logprobs": log_probs, "token_ids": [5, 6]}
    return {**in_chat(2), "object": "text_completion", "choices": [{**choice, "prompt_token_ids": [1, 2, 3]}]}


class Engine:
    """Answers the turns of a rollout; some of its answers are changed, always in the same way for the same turn."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rollout = 0
        self.complaints: list[tuple[int, str]] = []
        self.sent: list[tuple[int, str, bytes]] = []  # turn, status and body of each answer in this rollout

    def begin(self, rollout: int) -> None:
        self.rollout = rollout
        self.sent = []

    async def reply(self, asked: Asked) -> Answer:
        if (complaint := _complaint(asked)) is not None:
            self.complaints.append((self.rollout, complaint))
        turn = _turn(asked.body)
        dice = random.Random(f"{self.seed} {self.rollout} {turn}")
        if asked.target == "/tokenize":
            whole: Any = {"count": 3, "tokens": [1, 2, 3], "max_model_len": 100}
        elif asked.target.endswith("/responses"):
            whole = in_responses(turn)
        elif asked.target.endswith("/chat/completions"):
            whole = in_chat(turn)
        else:
            whole = in_completions(turn)
        answer = self._changed(whole, turn, dice)
        self.sent.append((turn, answer.status, answer.body[:2000]))
        return answer

    def _changed(self, whole: Any, turn: int, dice: random.Random) -> Answer:
        kind = dice.random()
        if kind < 0.3:
            return as_json(whole)
        if kind < 0.8:
            return as_json(changed(whole, dice))
        if kind < 0.9 or not turn:
            return Answer(changed_bytes(whole, dice))
        return _error(dice)


def _error(dice: random.Random) -> Answer:
    """An error about what the policy wrote, in one of the forms that engines and gateways have for it."""
    said = dice.choice([*OVERFLOWS, *REFUSALS])
    body = dice.choice(
        [
            {"error": {"message": said, "type": "BadRequestError", "param": None, "code": 400}},
            {"object": "error", "message": said, "type": "BadRequestError", "code": 400},
            {"detail": [{"loc": ["body", "messages"], "msg": said, "type": "value_error"}]},
            {"error": said},
            [said],
            said,
        ]
    )
    status = dice.choice(
        ["400 Bad Request", "413 Too Large", "422 Unprocessable", "500 Error", "429 Too Many", "409 C"]
    )
    return dice.choice([as_json(body, status), as_json(changed(body, dice), status), Answer(said.encode(), status)])


def _turn(body: dict[str, Any]) -> int:
    items = body.get("messages") or body.get("input")
    if not isinstance(items, list):
        return 0
    turns, outside = 0, True
    for item in items:
        generated = item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")
        turns += generated and outside
        outside = not generated
    return turns


def _complaint(asked: Asked) -> str | None:
    """Return what an engine that is as strict as any would not take."""
    try:
        json.dumps(asked.body, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        return str(error)
    called: Counter[str] = Counter()
    for message in asked.body.get("messages") or asked.body.get("input") or ():
        if not isinstance(message, dict):
            continue
        calls = message.get("tool_calls") or ([message] if message.get("type") == "function_call" else [])
        for call in calls:
            function = call.get("function", call)
            call_id = call.get("call_id", call.get("id"))
            if not (isinstance(call_id, str) and call_id and isinstance(function["name"], str)):
                return f"call without id or name: {call}"
            if not isinstance(json.loads(function["arguments"]), dict):
                return f"arguments: {call}"
            called[call_id] += 1
        answered = message.get("tool_call_id")
        if message.get("type") == "function_call_output":
            answered = message["call_id"]
        if answered is not None:
            called[answered] -= 1
        content = message.get("content")
        if message.get("role") and not (isinstance(content, str | list) or calls):
            return f"content: {message}"
    return None if not +called and not -called else f"calls and outputs differ: {called}"


class Program(gymq.Agent):
    """A program that asks through the gateway, in the dialect of the hour."""

    gateway: Gateway
    dialect = ""

    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        program = PROGRAMS[self.dialect]
        asks, failed = asks_through(rollout), []
        last: dict[str, Any] = {}

        async def ask(params: dict[str, Any]) -> dict[str, Any]:
            try:
                last.update(await asks(params))
            except gymq.RolloutError as error:
                failed.append(error)
                raise
            return last

        async with self.gateway.admit(rollout.id, ask) as admission, aiohttp.ClientSession() as http:
            try:
                await program(http, admission, rollout.params)
            except aiohttp.ClientResponseError:
                if failed:
                    raise failed[0] from None
                raise
        rollout.response = last


MODELS: dict[str, tuple[type[gymq.Model], dict[str, Any]]] = {
    "responses": (OpenAIModel, {"dialect": "responses"}),
    "chat": (OpenAIModel, {"dialect": "chat"}),
    "vllm": (VLLMModel, {}),
    "vllm with ids": (VLLMModel, {"return_token_id_information": True}),
    "vllm with ids in the reply": (
        VLLMModel,
        {"return_token_id_information": True, "request_prompt_and_generation_token_ids": True},
    ),
    "vllm responses": (VLLMModel, {"is_responses_native": True, "uses_reasoning_parser": False}),
    "vllm completions": (
        VLLMModel,
        {"use_completions_api": True, "render_chat_template": True, "return_token_id_information": True},
    ),
}


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MockServer]:
    monkeypatch.setattr(endpoint, "sleep", lambda seconds: asyncio.sleep(0))
    async with MockServer() as server:
        yield server


@pytest.fixture
async def models(server: MockServer) -> AsyncIterator[dict[str, gymq.Model]]:
    server.aside = lambda body: next_token(body) if is_examination(body) else None
    foreign = {"openai_base_url": server.url, "openai_api_key": "none", "openai_model": "served"}
    own = {"base_url": server.url, "api_key": "none", "model": "served", "return_token_id_information": False}
    own["uses_reasoning_parser"] = True
    async with AsyncExitStack() as stack:
        started = {}
        for name, (kind, options) in MODELS.items():
            start = await stack.enter_async_context(starting(kind))
            started[name] = await start(**{**(foreign if kind is OpenAIModel else own), **options})
        yield started


def answers_of(model: gymq.Model) -> Callable[[dict[str, Any]], Any]:
    """Return what asks a model, and makes of its reply what is sent and read again."""

    async def answer(params: dict[str, Any]) -> dict[str, Any]:
        reply = await model.respond(gymq.ModelRequest(params, "run/0/0", "run/0/0", 30.0))
        packing.pack(reply)
        try:
            encode(Generated(response=reply))
        except BadMessage as error:  # as a worker answers then
            raise gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, str(error)) from None
        return reply

    return answer


async def outcome(agent: type[gymq.Agent], model: gymq.Model) -> str:
    """Return what becomes of a rollout; `lost: ` and why."""
    async with AgentHarness(agent, Sums, answers_of(model)) as rollouts:
        try:
            await rollouts.run(ROW)
        except gymq.RolloutError as error:
            return "retried" if error.retryable else f"lost: {error.message}"
        except Exception as error:
            return f"lost: {error!r}"
        return "scored"


@pytest.mark.parametrize(
    ("size", "seed"),
    [(300, 34), *(pytest.param(2000, None, id=f"part-{part}-of-5", marks=pytest.mark.nightly) for part in range(1, 6))],
)
async def test_rollouts_are_scored_cut_or_retried(
    server: MockServer, models: dict[str, gymq.Model], size: int, seed: int | None
) -> None:
    seed = secrets.randbits(32) if seed is None else seed  # a failure names it
    engine = Engine(seed)
    server.reply = engine.reply
    outcomes: Counter[str] = Counter()
    lost = []
    async with Gateway() as Program.gateway:
        for index in range(size):
            dice = random.Random(f"{seed} {index}")
            name, Program.dialect = dice.choice(list(models)), dice.choice(["", *PROGRAMS])
            engine.begin(index)
            found = await outcome(Program if Program.dialect else SimpleAgent, models[name])
            outcomes[found[:7]] += 1
            if found.startswith("lost"):
                lost.append((seed, index, name, Program.dialect, found, engine.sent))
    assert (lost, engine.complaints) == ([], []), seed
    assert outcomes["scored"] > size / 3
