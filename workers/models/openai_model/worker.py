"""Any endpoint that speaks OpenAI's Responses or Chat Completions dialect over HTTP."""

from __future__ import annotations

import asyncio
import difflib
import time
from typing import Any, Literal

from gymq.workers.models.openai_model.endpoint import Endpoint, NotJson
from gymq.workers.models.openai_model.endpoint_model import PROBE, EndpointModel, failed, unsendable
from gymq.workers.models.openai_model.options import OpenAIOptions
from gymq.workers.models.openai_model.overflow import ContextOverflow
from gymq.workers.models.openai_model.refusal import UNFIT, Refused

import gymq
from gymq.ext.conversion.arguments import with_sent_arguments
from gymq.ext.conversion.from_chat import chat_to_response
from gymq.ext.conversion.mending import readable_response
from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.protocol.tokens import TOKEN_FIELDS
from gymq.responses import InvalidReply, ResponsesError, validate_params
from gymq.responses.errors import warn_once
from gymq.responses.tokens import OPTIONAL_TOKEN_FIELDS

_MAYBE_UNKNOWN_MODEL = frozenset({400, 404})
MAX_MODELS_NAMED = 5

Dialect = Literal["responses", "chat"]

_OURS = frozenset({*TOKEN_FIELDS, *OPTIONAL_TOKEN_FIELDS})  # fields of items that foreign endpoints do not know


class OpenAIModel(EndpointModel):
    """Sends each request to one endpoint and checks what comes back."""

    Options: type[OpenAIOptions] = OpenAIOptions

    _dialect: Dialect | None = None  # the one to ask in; None until the endpoint was found to speak one

    def make_endpoint(self) -> Endpoint:
        """Return what requests are sent to; a worker for another kind of endpoint overrides it."""
        return Endpoint(
            self.options.openai_base_url,
            headers=self.options.headers(),
            secrets=self.options.secrets(),
            max_concurrent_requests=self.options.request_limit,
        )

    def endpoints(self) -> list[Endpoint]:
        return [self._endpoint]

    async def start(self) -> None:
        await super().start()
        await self._open()

    async def _open(self) -> None:
        if self.options.dialect != "auto":
            self._dialect = self.options.dialect
        self._endpoint = self.make_endpoint()
        await self._endpoint.start()

    async def stop(self) -> None:
        await self._endpoint.stop()
        await super().stop()

    async def probe(self, timeout_s: float) -> None:
        if self.options.cache is not False:
            return  # its answers may all be there, and the endpoint gone
        await self._open()
        try:
            await self.ask(gymq.ModelRequest(dict(PROBE), "probe", "probe", timeout_s))
        except gymq.RolloutError as error:
            refused = error.__context__
            if isinstance(refused, Refused) and refused.status in _MAYBE_UNKNOWN_MODEL:
                await self._check_model_name()
            raise
        finally:
            await self._endpoint.stop()

    async def _check_model_name(self) -> None:
        """Raises RolloutError: the endpoint lists its models, and the one of the options is not among them."""
        name, served = self.options.openai_model, await self._endpoint.models()
        if served and name not in served:
            nearest = difflib.get_close_matches(name, [*served], n=MAX_MODELS_NAMED, cutoff=0.0)
            names = self._endpoint.excerpt(", ".join(nearest))
            text = f"{self._endpoint.base_url}: no model {name!r} there; it serves {names}"
            raise failed(text, retryable=False, curable=True)

    async def ask(self, request: gymq.ModelRequest) -> dict[str, Any]:
        try:
            params = self._sendable(request.params)
        except ResponsesError as error:
            raise unsendable(error) from None
        try:
            if self._dialect is None:
                return await self._ask_in_either(params, request.timeout_s)
            return await self._ask_in(self._dialect, params, request.timeout_s)
        except Refused as refused:
            message = str(refused)
            if refused.is_unknown_path and self.options.dialect == "responses":
                message += "; if it has no /responses, use `--dialect chat` or the option `dialect: chat`"
            raise failed(message, retryable=refused.retryable, curable=refused.curable) from None

    async def _ask_in_either(self, params: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Ask in the Responses dialect or, if that path is missing or refuses, in Chat Completions; remember which.

        Raises:
            Refused, RolloutError: as `_ask_in`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        try:
            reply = await self._ask_in("responses", params, timeout_s)
        except Refused as refused:
            if not refused.is_unknown_path and refused.status not in UNFIT:
                raise
            first = refused
        except NotJson:
            first = None
        else:
            self._dialect = "responses"
            return reply
        try:
            reply = await self._ask_in("chat", params, deadline - loop.time())
        except (Refused, gymq.InvalidTask) as refused:
            if first is not None and not first.is_unknown_path:
                raise first from None
            if isinstance(refused, Refused) and not refused.is_unknown_path:
                self._dialect = "chat"
            raise
        if first is not None and not first.is_unknown_path:
            warn_once(f"{first}; its Chat Completions take the request, so all are sent there")
        self._dialect = "chat"
        return reply

    async def _ask_in(self, dialect: Dialect, params: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Ask in one dialect.

        Raises:
            Refused: the endpoint will not answer.
            RolloutError: the answer is not usable.
        """
        chat = dialect == "chat"
        try:
            asked = responses_to_chat(params, strict=True) if chat else params
        except ResponsesError as error:
            raise unsendable(error) from None
        body = {**self.options.extra_body, **asked, "model": self.options.openai_model}
        path = "/chat/completions" if chat else "/responses"
        try:
            answer = await self._endpoint.post(path, body, timeout_s)
            return self._chat_reply(answer, params) if chat else readable_response(answer, params, body["model"])
        except ContextOverflow:
            return self._cut_short(params)
        except InvalidReply as error:
            message = f"{self._endpoint.base_url}{path}: unusable reply: {error}"
            cure = "" if chat else "; if its Chat Completions work, use `--dialect chat` or the option `dialect: chat`"
            raise failed(self._endpoint.excerpt(message) + cure, retryable=True) from None

    def _sendable(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return what the caller set, without what only we understand."""
        checked = {name: value for name, value in validate_params(params).items() if value is not None}
        if isinstance(checked["input"], list):
            checked["input"] = [
                with_sent_arguments({name: value for name, value in item.items() if name not in _OURS})
                for item in checked["input"]
                if not (self.options.drop_input_reasoning_items and item.get("type") == "reasoning")
            ]
        return checked

    def _chat_reply(self, completion: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        return chat_to_response(completion, params, model=self.options.openai_model, split_reasoning=False)

    def _cut_short(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return an empty reply that says it is incomplete: the conversation has filled the model's context."""
        choice = {"finish_reason": "length", "message": {"content": None}}
        completion = {"created": int(time.time()), "choices": [choice]}
        return chat_to_response(completion, params, model=self.options.openai_model, split_reasoning=False)
