"""Agents over HTTP: a row in, its verified rollout out."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Mapping

import msgspec
from aiohttp import web

from gymq import responses
from gymq.data.failure_status import StatusError, status_error
from gymq.data.jsonl import JsonlError
from gymq.data.jsonl import parse_object as parse_row
from gymq.data.rows import AGENT_REF, PARAMS, RowError, agent_name
from gymq.data.trainer_results import NO_TOKEN_IDS, Untrainable, encode_result
from gymq.ext.http.errors import invalid
from gymq.ext.http.previous_responses import NONE_KEPT
from gymq.ext.http.requests import JSON, json_response, parse_object
from gymq.ext.nemo_gym.aggregate import aggregate
from gymq.ext.nemo_gym.context import Context
from gymq.ext.nemo_gym.directory import InstanceAddress
from gymq.ext.nemo_gym.keys import key_of
from gymq.ext.nemo_gym.rollouts import PendingRollout
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import Failure
from gymq.protocol.tokens import to_json

log = logging.getLogger("gymq.ext.nemo_gym")

HEARTBEAT = "Gymq-Heartbeat"
ON_UNTRAINABLE = "Gymq-On-Untrainable"

_UNTRAINABLE: dict[str, Untrainable] = {"error": "error", "empty": "empty", "allow": "allow"}


class AgentRoutes:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._reported_agents: set[str] = set()  # agents whose model returns no token ids

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/run", self.run),
            web.post("/agents/{instance}/run", self.run),
            web.post("/agents/{instance}/v1/responses", self.respond),
            web.post("/aggregate_metrics", self.aggregate),
            web.post("/agents/{instance}/aggregate_metrics", self.aggregate),
            web.post("/resources/{instance}/aggregate_metrics", self.aggregate),
        ]

    async def run(self, request: web.Request) -> web.StreamResponse:
        """Roll out a row; cookies are neither read nor set, since callers share them between rollouts."""
        context = self._context
        context.admit(request)
        place = context.place(request)
        heartbeat_s = _heartbeat_s(request.headers, context.settings.heartbeat_s)
        wanted = _on_untrainable(request.headers)
        body = await context.body(request)
        fields = _checked_row(body)
        agent = self._agent(place, fields, request.path)
        on_untrainable = wanted or self._default_for(agent)
        key = key_of(request.headers, fields, agent.name)
        pending = await context.rollouts.begin(body, agent.name, key)
        del body, fields  # the queue has them from now on; what waits here shall be small
        work = self._result(pending, agent, on_untrainable)
        if heartbeat_s is None:
            return json_response(await work)
        return await _with_heartbeats(request, work, heartbeat_s)

    def _default_for(self, agent: InstanceAddress) -> Untrainable:
        """Return the default for requests that name none: a model that returns no token ids is not trained on."""
        settings = self._context.settings
        is_set = "on_untrainable" in settings.model_fields_set
        return settings.on_untrainable if is_set or agent.asks_for_ids else "allow"

    async def _result(self, pending: PendingRollout, agent: InstanceAddress, on_untrainable: Untrainable) -> bytes:
        outcome = await pending.outcome()
        try:
            return encode_result(outcome, on_untrainable)
        except StatusError as error:
            # Clients may show the status alone, so the reason is in the log too; once, as all rows have it.
            if error.failure_class == NO_TOKEN_IDS and agent.name not in self._reported_agents:
                self._reported_agents.add(agent.name)
                log.warning("%s: %s", agent.name, error.message)
            raise

    async def respond(self, request: web.Request) -> web.Response:
        """Return an agent's response to create parameters, without a verdict."""
        self._context.admit(request)
        return await self.respond_as(request, self._context.place_of_kind(request, "agents"))

    async def respond_as(self, request: web.Request, agent: InstanceAddress) -> web.Response:
        params = parse_object(await self._context.body(request))
        if params.get("stream"):
            raise invalid("stream: an agent's response is returned whole")
        row = msgspec.json.encode({PARAMS: NONE_KEPT.continued(params)})
        _checked_row(row)
        outcome = await self._context.rollouts.roll_out(row, agent.name)
        if isinstance(outcome, Failure):
            raise status_error(outcome)
        return json_response(to_json(outcome.response))

    async def aggregate(self, request: web.Request) -> web.Response:
        """Return statistics over the verified results of rows with indices."""
        self._context.admit(request)
        body = parse_object(await self._context.body(request))
        results = body.get("verify_responses")
        if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
            raise invalid("verify_responses: expected a list of objects")
        try:
            made = await asyncio.to_thread(aggregate, results)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise invalid(f"verify_responses: {error}") from None
        return json_response(to_json(made._asdict()))

    def _agent(self, place: InstanceAddress | None, fields: Mapping[str, msgspec.Raw], path: str) -> InstanceAddress:
        """Return the agent that a row names, else the one at the path or port, else the only one."""
        if place is not None and place.kind != "agents":
            raise StatusError(404, "not_found", f"/run is served by agents; {place.name} belongs to the {place.kind}")
        if AGENT_REF not in fields:
            if place is None and len(self._context.directory.of_kind("agents")) != 1:
                raise invalid(f"{AGENT_REF}: missing; there are several agents")
            return place or self._context.only("agents", path)
        try:
            name = agent_name(fields[AGENT_REF])
        except RowError as error:
            raise invalid(str(error)) from None
        found = self._context.directory.get(name)
        if found is None or found.kind != "agents":
            names = ", ".join(agent.name for agent in self._context.directory.of_kind("agents"))
            raise invalid(f"{AGENT_REF}.name: no agent is named {name!r:.80}; the agents are: {names or 'none'}")
        return found


def _checked_row(body: bytes) -> dict[str, msgspec.Raw]:
    """Return the fields of a row, checked so that nothing unusable gets into the queue."""
    try:
        fields = parse_row(body)
        params = msgspec.json.decode(fields[PARAMS])
        msgspec.json.decode(body)  # all of it, not only what is looked at here
    except JsonlError as error:
        raise invalid(f"the body must be a row: {str(error).removeprefix('the line is ')}") from None
    except KeyError:
        raise invalid(f"{PARAMS}: missing in the row") from None
    except UNDECODABLE as error:
        raise invalid(f"the body must be a row: {error}") from None
    try:
        responses.row_params(params)
    except responses.InvalidRequest as error:
        where = ".".join(part for part in (PARAMS, error.path) if part)
        raise invalid(f"{where}: {error.reason}") from None
    return fields


def _heartbeat_s(headers: Mapping[str, str], default_s: float | None) -> float | None:
    given = headers.get(HEARTBEAT)
    if given is None:
        return default_s
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0.01 <= seconds <= 3600:
        raise invalid(f"{HEARTBEAT} must be a number of seconds from 0.01 to 3600")
    return seconds


def _on_untrainable(headers: Mapping[str, str]) -> Untrainable | None:
    given = headers.get(ON_UNTRAINABLE)
    if given is None:
        return None
    if given not in _UNTRAINABLE:
        raise invalid(f"{ON_UNTRAINABLE} must be one of {', '.join(_UNTRAINABLE)}")
    return _UNTRAINABLE[given]


async def _with_heartbeats(request: web.Request, work: Awaitable[bytes], every_s: float) -> web.StreamResponse:
    """Send a result with leading whitespace, so that proxies do not consider the connection idle.

    The first blank commits to status 200. A rollout that fails later aborts the connection, so that its reader gets an
    incomplete document rather than one that is not a result.
    """
    working = asyncio.ensure_future(work)
    stream = web.StreamResponse(headers={"Content-Type": JSON})
    try:
        await asyncio.wait([working], timeout=every_s)
        if working.done():
            return json_response(working.result())
        await stream.prepare(request)
        while not working.done():
            await stream.write(b" ")
            await asyncio.wait([working], timeout=every_s)
        if working.exception() is not None:
            if request.transport is not None:
                request.transport.abort()
            return stream
        await stream.write(working.result())
        await stream.write_eof()
        return stream
    finally:
        working.cancel()
