"""Serves one model instance on the bus."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from gymq import responses, subjects, tokens
from gymq.authoring import current_call
from gymq.calls import Calls
from gymq.messages import Claim, FailureClass, Generate, Generated, decoder
from gymq.model import Model, ModelRequest
from gymq.outcomes import JudgeFailed, RolloutError
from gymq.serving import Server

log = logging.getLogger("gymq.model")

JUDGE_TIMEOUT_S = 600.0

_decode = decoder(Generate, Claim)


class ModelRunner:
    """Answers `Generate` requests with a model."""

    def __init__(self, model: Model) -> None:
        self.model = model

    async def serve(self, server: Server) -> None:
        limit = self.model.options.max_concurrency or self.model.max_concurrency
        for subject in (subjects.model(self.model.name), subjects.judge(self.model.name)):
            await server.serve(
                self.model.name,
                subject,
                _decode,
                self.answer,
                group=subjects.MODEL_GROUP,
                limit=limit,
                broken=FailureClass.MODEL_FAILED,
            )

    async def answer(self, _subject: str, request: Generate) -> Generated:
        """One model call.

        Raises:
            RolloutError: the model failed, or answered with nonsense.
        """
        left_s = current_call.get().deadline - asyncio.get_running_loop().time()  # it may have waited for a slot
        asked = ModelRequest(request.params, request.session, request.rollout, min(request.timeout_s, left_s))
        try:
            response = await self.model.respond(asked)
            tokens.pack(response)
        except RolloutError:
            raise
        except (ValueError, AttributeError, TypeError) as error:
            raise RolloutError(
                FailureClass.MODEL_FAILED, f"{self.model.name} answered with nonsense: {error}"
            ) from error
        except Exception as error:
            text = f"{self.model.name}: {type(error).__name__}: {error}"
            raise RolloutError(FailureClass.MODEL_FAILED, text) from error
        return Generated(response=response)


class BusModels:
    """Lets a resources worker ask model workers: the judges."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def respond(self, model: str, params: dict[str, Any]) -> dict[str, Any]:
        """The model's reply.

        Raises:
            JudgeFailed: there is none.
        """
        call = current_call.get()
        try:
            params = responses.validate_params(params)
        except responses.InvalidRequest as error:
            raise JudgeFailed(f"the request to judge {model} does not fit: {error}") from None
        if isinstance(params["input"], str):
            params["input"] = [responses.user_message(params["input"])]
        timeout_s = min(JUDGE_TIMEOUT_S, call.deadline - asyncio.get_running_loop().time())
        if timeout_s <= 0:
            raise JudgeFailed(f"there is no time left to ask judge {model}")
        request = Generate(rollout=call.rollout, timeout_s=timeout_s, params=params, session=call.rollout)
        try:
            generated = await self._calls.call(subjects.judge(model), request)
            assert isinstance(generated, Generated)
            return responses.validate_response(generated.response)
        except RolloutError as error:
            raise JudgeFailed(f"judge {model}: {error.message}") from None
        except responses.InvalidReply as error:
            raise JudgeFailed(f"judge {model} gave no Responses object: {error}") from None
