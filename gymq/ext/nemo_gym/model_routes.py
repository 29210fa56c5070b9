"""Models over HTTP, in each dialect; with a rollout in the path, for its calls."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
from aiohttp import web

from gymq.agent import checked_response
from gymq.data.failure_status import StatusError
from gymq.ext.http.dialects import RESPONSES, Dialect, dialects
from gymq.ext.http.errors import not_found
from gymq.ext.http.model_calls import CAPTURE, PREFIX, Ask, answer, rollout_id
from gymq.ext.http.previous_responses import NONE_KEPT
from gymq.ext.http.requests import json_response
from gymq.ext.nemo_gym.agent_routes import AgentRoutes
from gymq.ext.nemo_gym.context import Context
from gymq.ext.nemo_gym.directory import InstanceAddress
from gymq.protocol import subjects
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import Generate, Generated
from gymq.protocol.tokens import to_json


class _Named(msgspec.Struct):
    model: str | None = None


class ModelRoutes:
    def __init__(self, context: Context, agents: AgentRoutes) -> None:
        self._context = context
        self._agents = agents

    def routes(self) -> list[web.RouteDef]:
        found = [web.get(f"{place}/v1/models", self.models) for place in ("", "/models/{instance}")]
        for dialect in dialects():
            for place in ("", "/models/{instance}"):
                for rollout in ("", PREFIX, PREFIX + CAPTURE):
                    found.append(web.post(place + rollout + dialect.path, self._handler(dialect)))
        return found

    async def models(self, request: web.Request) -> web.Response:
        """Return the model instances in the form of OpenAI's list of models."""
        self._context.admit(request)
        place = self._context.place(request)
        listed = [
            {"id": model.name, "object": "model", "created": 0, "owned_by": "gymq"}
            for model in self._context.directory.of_kind("models")
            if place is None or place == model
        ]
        return json_response(msgspec.json.encode({"object": "list", "data": listed}))

    def _handler(self, dialect: Dialect) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                context = self._context
                context.admit(request)
                place = context.place(request)
                if place is not None and place.kind == "agents" and dialect is RESPONSES:
                    return await self._agents.respond_as(request, place)
                rollout = rollout_id(request) if "rollout" in request.match_info else None
                body = await context.body(request)
                model = place or self._named_in(request, body)
                if model.kind != "models":
                    raise not_found(f"{request.path} is served by models; {model.name} is one of the {model.kind}")
                return await answer(request, dialect, body, self._ask(model, rollout), NONE_KEPT)
            except StatusError as error:
                return json_response(to_json(dialect.error(error)), error.status)

        return handle

    def _named_in(self, request: web.Request, body: bytes) -> InstanceAddress:
        """Return the model that a path or a body names, else the only one."""
        try:
            name = request.match_info.get("model") or msgspec.json.decode(body, type=_Named).model
        except UNDECODABLE:
            name = None  # the error comes from where the whole body is read
        found = self._context.directory.get(name or "")
        return found if found is not None and found.kind == "models" else self._context.only("models", request.path)

    def _ask(self, model: InstanceAddress, rollout: str | None) -> Ask:
        # Calls of one rollout reach the same engine, which has its prefix in the cache.
        name = rollout or f"bridge-{secrets.token_hex(8)}"

        async def ask(params: dict[str, Any]) -> dict[str, Any]:
            timeout_s = self._context.settings.model_timeout_s
            request = Generate(rollout=name, timeout_s=timeout_s, params=params, session=name)
            generated = await self._context.calls.call(subjects.MODEL.of(model.name), request)
            assert isinstance(generated, Generated)
            return checked_response(generated.response)

        return ask
