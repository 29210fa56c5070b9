"""A vLLM model worker against a scripted engine: what it asks, and what it answers, over several turns.

Everything but the sockets is real: the script takes the place of the HTTP client.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any
from unittest.mock import patch

import aiohttp
from gymq.workers.models.openai_model import endpoint
from gymq.workers.models.vllm_model.tests.examined import is_examination, next_token
from gymq.workers.models.vllm_model.worker import VLLMModel

from gymq.authoring import OptionsError
from gymq.failures import RolloutError
from gymq.model import ModelRequest

from ..comparison import Mismatch
from ..plain import plain
from ..refused import Refused

TIMEOUT_S = 3600.0
_TIMES = ("created", "created_at")


async def run(case_input: dict[str, Any]) -> dict[str, Any]:
    script = Script(case_input["upstream"])
    try:
        worker = VLLMModel(case_input["config"])
    except OptionsError as error:
        raise Refused(str(error)) from None
    async with AsyncExitStack() as stack:
        stack.enter_context(patch.object(aiohttp, "ClientSession", script.client))
        stack.enter_context(patch.object(endpoint, "sleep", _no_sleep))
        await worker.start()
        stack.push_async_callback(worker.stop)
        return {"turns": [await _turn(worker, script, turn) for turn in case_input["turns"]]}


def normalise(value: Any) -> Any:
    """Drop times, the `type` that a short message does without, and of errors all but the engine's status."""
    if isinstance(value, list):
        return [normalise(element) for element in value]
    if not isinstance(value, dict):
        return value
    kept = {name: normalise(member) for name, member in value.items() if name not in _TIMES}
    if "role" in kept and kept.get("type") == "message" and "id" not in kept:
        del kept["type"]
    if "upstream_requests" in kept and "error" in kept:
        kept["error"] = {"status": kept["error"].get("status")}
    return kept


async def _turn(worker: VLLMModel, script: "Script", turn: dict[str, Any]) -> dict[str, Any]:
    script.requests = []
    script.last_status = None
    request = ModelRequest(turn["request"], turn.get("session") or "", "case", TIMEOUT_S)
    respond = worker.respond_chat if turn["endpoint"] == "chat" else worker.respond
    try:
        reply = await respond(request)
    except RolloutError as error:
        return {"upstream_requests": script.requests, "error": _error(error, script.last_status)}
    return {"upstream_requests": script.requests, "reply": plain(reply)}


def _error(error: RolloutError, last_status: int | None) -> dict[str, Any]:
    """The failure, with the engine's status if it was passed on."""
    passed_on = last_status is not None and last_status >= 400
    if passed_on and str(last_status) not in error.message:
        raise Mismatch([f"the engine answered {last_status}, but the message does not say so: {error.message}"])
    return {"message": error.message, "status": last_status if passed_on else None}


class Script:
    """Returns the engine's replies in order to any caller, and records the requests."""

    def __init__(self, replies: list[dict[str, Any]]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.last_status: int | None = None
        self._replies = list(replies)

    def client(self, *, connector: aiohttp.BaseConnector, **_settings: Any) -> "Client":
        return Client(self, connector)

    def answer(self, url: str, data: bytes) -> "Answer":
        asked = json.loads(data)
        if is_examination(asked):
            return Answer(200, next_token(asked))
        self.requests.append({"url": url, "body": asked})
        if not self._replies:
            raise Mismatch([f"the case has no reply for request {len(self.requests)} of this turn, to {url}"])
        reply = self._replies.pop(0)
        self.last_status = reply["status"]
        return Answer(reply["status"], reply["body"])


class Client:
    """What `Endpoint` needs of an HTTP client."""

    def __init__(self, script: Script, connector: aiohttp.BaseConnector) -> None:
        self._script = script
        self._connector = connector

    def post(
        self, url: str, *, data: bytes, allow_redirects: bool, headers: Mapping[str, str] | None = None
    ) -> "Answer":
        assert not allow_redirects
        return self._script.answer(url, data)

    def get(self, _url: str, *, allow_redirects: bool) -> "Answer":
        """Answer what the script is not about: the engine's load, and the version of its weights."""
        assert not allow_redirects
        return Answer(404, {})

    async def close(self) -> None:
        await self._connector.close()


class Answer:
    """An HTTP response, and the context in which it is read. A body that is not an object is sent as it is."""

    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self.reason = ""
        self.headers: dict[str, str] = {}
        as_text = isinstance(body, str)
        self.content_type = "text/plain" if as_text else "application/json"
        self.content = self
        self._data = (body if as_text else json.dumps(body)).encode()

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._data

    async def __aenter__(self) -> "Answer":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


async def _no_sleep(_seconds: float) -> None:
    return None
