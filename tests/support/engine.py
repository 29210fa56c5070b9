"""A scripted engine on localhost that speaks chat completions, counts tokens and keeps what it was asked."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from gymq.workers.models.vllm_model.tests.examined import is_examination, next_token

Body = dict[str, Any]

END = 2  # the token that ends a turn


def say(text: str | None = None, *calls: tuple[str, Any], reasoning: str | None = None) -> Body:
    """An assistant message: a text, calls, or both."""
    message: Body = {"role": "assistant", "content": text}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for name, arguments in calls
        ]
    return message


def tokens(text: str) -> list[int]:
    return [100 + byte for byte in text.encode()]


def prompt_ids(messages: list[Body], *, drop_reasoning: bool = False) -> list[int]:
    """The ids of a conversation: what was sampled before is taken as it was, unless the template renders it again."""
    ids: list[int] = []
    for message in messages:
        if message.get("generation_token_ids") and not drop_reasoning:
            ids = [*message["prompt_token_ids"], *message["generation_token_ids"]]
        else:
            ids += [10, *tokens(str(message.get("content"))), 11]
    return ids


class Engine:
    """Answers each request with `turn(body)`: a message, or a status and a body."""

    def __init__(self) -> None:
        self.requests: list[Body] = []
        self.num_dropped = 0  # requests whose sender hung up
        self.num_sampled = 0  # tokens
        self.turn: Callable[[Body], Any] = lambda body: say("done")
        self.style = "message"  # how token ids are returned: message, inline or names
        self.drop_reasoning = False
        self.log_probs = "processed"  # or "raw": what the log probs of a worker that examines the engine are of
        self.spoil: Callable[[Body], None] = lambda completion: None
        self.weight_version = ""  # as the engine names it itself; empty: it names none
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "Engine":
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_get("/model_info", self._model_info)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=4096).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        if is_examination(body):
            return web.json_response(next_token(body, log_probs=self.log_probs))
        self.requests.append(body)
        try:
            message = self.turn(body)
            if isinstance(message, Awaitable):
                message = await message
        except asyncio.CancelledError:
            self.num_dropped += 1
            raise
        if isinstance(message, tuple):
            return web.json_response(message[1], status=message[0])
        completion = self._completion(body, message)
        if self.weight_version:
            completion["metadata"] = {"weight_version": self.weight_version}
        self.spoil(completion)
        return web.Response(text=json.dumps(completion), content_type="application/json")

    def _completion(self, body: Body, message: Body) -> Body:
        choice: Body = {
            "index": 0,
            "message": message,
            "finish_reason": message.pop("finish_reason", "tool_calls" if "tool_calls" in message else "stop"),
        }
        completion: Body = {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [choice],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        }
        if not body.get("logprobs"):
            return completion
        prompt = prompt_ids(body["messages"], drop_reasoning=self.drop_reasoning)
        completion["usage"] |= {"prompt_tokens": len(prompt), "total_tokens": len(prompt) + 2}
        said = (message.get("reasoning_content") or "") + (message.get("content") or "")
        generation = [] if message.get("empty") else [*tokens(said + json.dumps(message.get("tool_calls", ""))), END]
        self.num_sampled += len(generation)
        log_probs = [-0.5 - index / 1024 for index in range(len(generation))]
        choice["logprobs"] = {
            "content": [
                {"token": f"token_id:{token}", "logprob": log_prob}
                for token, log_prob in zip(generation, log_probs, strict=True)
            ]
        }
        if self.style == "message":
            message |= {
                "prompt_token_ids": prompt,
                "generation_token_ids": generation,
                "generation_log_probs": log_probs,
            }
        elif self.style == "inline":
            completion["prompt_token_ids"] = prompt
            choice["token_ids"] = generation
        return completion

    async def _model_info(self, _request: web.Request) -> web.Response:
        return web.json_response({"model_path": "m", "weight_version": self.weight_version or "default"})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        ids = prompt_ids(body["messages"], drop_reasoning=self.drop_reasoning)
        return web.json_response({"tokens": ids})
