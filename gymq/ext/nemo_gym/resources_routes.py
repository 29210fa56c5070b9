"""Routes of resources workers: seed, tools, verify. The cookie of a request is its session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from gymq.data.failure_status import StatusError
from gymq.ext.http.errors import not_found
from gymq.ext.http.requests import error_response, json_response
from gymq.ext.nemo_gym.context import Context
from gymq.ext.nemo_gym.cookies import SessionCookies
from gymq.ext.nemo_gym.directory import InstanceAddress
from gymq.ext.nemo_gym.head_routes import HEAD_PATHS
from gymq.ext.nemo_gym.keys import HEADER
from gymq.ext.nemo_gym.resources_calls import ResourcesCalls


class ResourcesRoutes:
    def __init__(self, context: Context, cookies: SessionCookies) -> None:
        self._context = context
        self._cookies = cookies

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/seed_session", self.seed),
            web.post("/verify", self.verify),
            web.post("/close_session", self.close),
            web.post("/resources/{instance}/seed_session", self.seed),
            web.post("/resources/{instance}/verify", self.verify),
            web.post("/resources/{instance}/close_session", self.close),
            web.post("/resources/{instance}/{tool}", self.call_tool),
            web.post("/{tool}", self.call_tool),  # last: every other path of one word goes before it
        ]

    async def seed(self, request: web.Request) -> web.Response:
        """Open a session with a row. Its cookie belongs to all further calls."""
        place, calls = self._admitted(request)
        body = await self._context.body(request)
        session = await calls.seed(body)
        return self._with_cookie(json_response(b"{}"), place, session)

    async def call_tool(self, request: web.Request) -> web.Response:
        """Call a tool; the answer's text is what the model reads, whatever the status."""
        self._context.admit(request)
        place = self._context.place(request)
        name = request.match_info["tool"]
        if place is None and request.path in HEAD_PATHS:
            raise web.HTTPMethodNotAllowed(request.method, ["GET", "HEAD"])
        meant = [place] if place else self._context.directory.of_kind("resources")
        if len(meant) != 1 or meant[0].kind != "resources":
            raise not_found(f"there is nothing at {request.path}")
        place, calls = self._admitted(request)
        arguments = await self._context.body(request)

        async def call(session: str | None) -> web.Response:
            result = await calls.call_tool(session, name, arguments, request.headers.get(HEADER))
            return web.Response(text=result.output, status=result.status, content_type=_content_type(result.output))

        return await self._in_session(request, place, call)

    async def verify(self, request: web.Request) -> web.Response:
        """Score a row with its response."""
        place, calls = self._admitted(request)
        body = await self._context.body(request)

        async def call(session: str | None) -> web.Response:
            return json_response(await calls.verify(session, body, request.headers.get(HEADER)))

        return await self._in_session(request, place, call)

    async def close(self, request: web.Request) -> web.Response:
        """Close the session of a cookie."""
        place, calls = self._admitted(request)
        session = self._session(request, place)
        if session is not None:
            await calls.close(session)
        answer = json_response(b"{}")
        answer.del_cookie(self._cookies.name(place.name), path="/")
        return answer

    def _admitted(self, request: web.Request) -> tuple[InstanceAddress, ResourcesCalls]:
        self._context.admit(request)
        place = self._context.place_of_kind(request, "resources")
        return place, ResourcesCalls(self._context.calls, place.name, self._context.settings.call_timeout_s)

    async def _in_session(
        self, request: web.Request, place: InstanceAddress, call: Callable[[str | None], Awaitable[web.Response]]
    ) -> web.Response:
        """Answer a call of a session, and send its cookie again.

        Agents of NeMo Gym keep only the cookies of the last reply. A call without a cookie is one without a session.
        Workers that keep state refuse it: in a session that was never seeded it would end as an unearned reward of 0.
        """
        session = self._session(request, place)
        try:
            answer = await call(session)
        except StatusError as error:
            answer = error_response(error)
        return (
            self._with_cookie(answer, place, session) if self._cookies.name(place.name) in request.cookies else answer
        )

    def _session(self, request: web.Request, place: InstanceAddress) -> str | None:
        value = request.cookies.get(self._cookies.name(place.name))
        return None if value is None else self._cookies.read(place.name, value)

    def _with_cookie(self, answer: web.Response, place: InstanceAddress, session: str | None) -> web.Response:
        answer.set_cookie(
            self._cookies.name(place.name),
            self._cookies.make(place.name, session),
            max_age=int(self._cookies.max_age_s),
            path="/",
            httponly=True,
            samesite="Lax",
        )
        return answer


def _content_type(text: str) -> str:
    return "application/json" if text[:1] in ("{", "[") else "text/plain"
