"""Routes of the viewer and its data, below `/ui`. Everything but the viewer's own files needs the bridge's key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from aiohttp import web

from gymq.bridge.context import ReadContext
from gymq.bridge.failures import invalid, not_found
from gymq.bridge.http import JSON, read_body
from gymq.bridge.web.live import MAX_IN_FLIGHT, Listeners, rollout_events, run_events
from gymq.bridge.web.rendering import MAX_BYTES, MOST_TEXTS, Rendering, RichText
from gymq.bridge.web.rollout_list import RolloutList, Wanted
from gymq.bridge.web.rollout_view import stored_view, tokens_of_item
from gymq.bridge.web.run_index import SORTS, Order, RunIndexes
from gymq.bridge.web.run_views import RunViews
from gymq.bridge.web.site import HEADERS, Site
from gymq.bus.streams import TASKS
from gymq.protocol import subjects
from gymq.protocol.messages import Outcome
from gymq.protocol.tokens import encode_json
from gymq.queue.outcome_store import OutcomeStore
from gymq.runs.cluster_status import read_queues, read_workers
from gymq.runs.in_progress import tasks_in_flight
from gymq.runs.readable import exact_record

MOST_INDEX = 2**53

_RUN = "/ui/api/runs/{run}"
_ROLLOUT = "/ui/api/rollouts/{run}/{task}/{rollout}"

_encode = msgspec.json.Encoder(enc_hook=encode_json).encode
_decode_texts = msgspec.json.Decoder(Annotated[list[RichText], msgspec.Meta(max_length=MOST_TEXTS)]).decode
T = TypeVar("T")
C = TypeVar("C", bound=str)


class WebRoutes:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._site = Site()
        self._views = RunViews(context.bus)
        self._list = RolloutList(context.bus)
        self._indexes = RunIndexes(context.bus)
        self._store = OutcomeStore(context.bus)
        self._listeners = Listeners(context)
        self._rendering = Rendering()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/ui", self.to_page),
            web.get("/ui/", self.page),
            web.get("/ui/api/runs", self.runs),
            web.get("/ui/api/cluster", self.cluster),
            web.get(_RUN, self.run),
            web.get(f"{_RUN}/live", self.run_live),
            web.get(f"{_RUN}/rollouts", self.rollouts),
            web.get(f"{_RUN}/in-hand", self.in_flight),
            web.get(f"{_RUN}/tasks", self.tasks),
            web.get(f"{_RUN}/table", self.table),
            web.get(f"{_RUN}/compared/{{other}}", self.compared),
            web.get(f"{_ROLLOUT}/neighbours", self.neighbours),
            web.get(_ROLLOUT, self.rollout),
            web.get(f"{_ROLLOUT}/live", self.rollout_live),
            web.get(f"{_ROLLOUT}/record", self.record),
            web.get(f"{_ROLLOUT}/failures", self.failures),
            web.get(f"{_ROLLOUT}/tokens/{{item}}", self.tokens),
            web.post("/ui/api/rendered", self.rendered),
            web.get("/ui/{file}", self.file),
        ]

    async def to_page(self, _request: web.Request) -> web.Response:
        return web.Response(status=308, headers={"Location": "/ui/"})

    async def page(self, _request: web.Request) -> web.Response:
        self._rendering.start()
        return self._site.response("index.html")

    async def file(self, request: web.Request) -> web.Response:
        return self._site.response(request.match_info["file"])

    async def runs(self, request: web.Request) -> web.Response:
        self._context.admit(request)
        skip = _given(request.query, "skip", _index) or 0
        found, count = await self._views.newest(skip, request.query.get("text", ""))
        return _answer({"runs": found, "num_runs": count})

    async def cluster(self, request: web.Request) -> web.Response:
        self._context.admit(request)
        bus = self._context.bus
        queues = [queue for queue in await read_queues(bus.js, TASKS) if queue.agent is not None]
        return _answer({"queues": queues, "workers": await read_workers(bus)})

    async def run(self, request: web.Request) -> web.Response:
        self._context.admit(request)
        return _answer(await self._views.view(_run(request)))

    async def run_live(self, request: web.Request) -> web.StreamResponse:
        self._context.admit(request)
        return await self._listeners.stream(request, run_events(self._views, _run(request)))

    async def rollouts(self, request: web.Request) -> web.Response:
        """Return a page of rollouts: those before a position, or the matching ones after it."""
        self._context.admit(request)
        run, query = _run(request), request.query
        before = _given(query, "before", _index)
        if before is not None:
            return _answer(await self._list.before(run, before))
        return _answer(await self._list.after(run, _given(query, "after", _index) or 0, _wanted(query)))

    async def in_flight(self, request: web.Request) -> web.Response:
        """Return the rollouts of a run that are in flight."""
        self._context.admit(request)
        tasks = await tasks_in_flight(self._context.bus, _run(request), MAX_IN_FLIGHT)
        fields = ("task_index", "rollout_index", "agent")
        return _answer([{name: getattr(task, name) for name in fields} for task in tasks])

    async def table(self, request: web.Request) -> web.Response:
        """Return a page of rollouts that match, sorted."""
        self._context.admit(request)
        query = request.query
        sort = _choice(query, "sort", *SORTS)
        skip = _given(query, "skip", _index) or 0
        is_descending = _choice(query, "order", "up", "down") == "down"
        wanted = _wanted(query)
        return _answer(await self._indexes.page(_run(request), wanted, sort, is_descending=is_descending, skip=skip))

    async def tasks(self, request: web.Request) -> web.Response:
        """Return a page of tasks with the rewards of their rollouts."""
        self._context.admit(request)
        query = request.query
        sort, shown = _choice(query, "sort", "task", "mean", "spread"), _choice(query, "show", "all", "uniform")
        skip = _given(query, "skip", _index) or 0
        return _answer(await self._indexes.tasks(_run(request), sort, is_uniform=shown == "uniform", skip=skip))

    async def compared(self, request: web.Request) -> web.Response:
        """Return this run and another task by task, with the paired difference."""
        self._context.admit(request)
        query, other = request.query, _token(request.match_info["other"])
        sort = _choice(query, "sort", "task", "worse", "better")
        skip = _given(query, "skip", _index) or 0
        return _answer(await self._indexes.comparison(_run(request), other, sort, skip))

    async def neighbours(self, request: web.Request) -> web.Response:
        """Return the rollouts before and after one."""
        self._context.admit(request)
        order = _choice(request.query, "order", *get_args(Order))
        return _answer(await self._indexes.neighbours(*_rollout(request), order))

    async def rollout(self, request: web.Request) -> web.Response:
        self._context.admit(request)
        return _answer(stored_view(await self._outcome(request)))

    async def rollout_live(self, request: web.Request) -> web.StreamResponse:
        self._context.admit(request)
        events = rollout_events(self._context, self._store, self._views, *_rollout(request))
        return await self._listeners.stream(request, events)

    async def record(self, request: web.Request) -> web.Response:
        """Return a rollout exactly as it is stored, as JSON."""
        self._context.admit(request)
        return _json_answer(exact_record(await self._outcome(request)))

    async def failures(self, request: web.Request) -> web.Response:
        """Return the failures of a rollout that were reported, also those that a later outcome replaced."""
        self._context.admit(request)
        return _answer(await self._views.failures_of(_rollout(request)))

    async def tokens(self, request: web.Request) -> web.Response:
        """Return the tokens of one item of a rollout's output."""
        self._context.admit(request)
        item = _index(request.match_info["item"])
        return _answer(tokens_of_item(await self._outcome(request), item))

    async def rendered(self, request: web.Request) -> web.Response:
        """Return texts that the page has as trees of elements, in order; null for one to be shown as it is."""
        self._context.admit(request)
        body = await read_body(request, max_bytes=MAX_BYTES, timeout_s=self._context.settings.body_timeout_s)
        try:
            sources = _decode_texts(body)
        except msgspec.DecodeError as error:
            raise invalid(f"the body is not a list of texts: {error}") from None
        return _answer(await self._rendering.render(sources))

    def close(self) -> None:
        """End the processes that render texts."""
        self._rendering.close()

    async def _outcome(self, request: web.Request) -> Outcome:
        of = _rollout(request)
        found = await self._store.find_outcome(*of)
        if found is None:
            raise not_found("run {} has no outcome of task {} rollout {}".format(*of))
        return found[1]


def _answer(value: Any) -> web.Response:
    return _json_answer(_encode(value))


def _json_answer(body: bytes) -> web.Response:
    headers = {"X-Content-Type-Options": HEADERS["X-Content-Type-Options"], "Cache-Control": "no-store"}
    return web.Response(body=body, content_type=JSON, headers=headers)


def _run(request: web.Request) -> str:
    return _token(request.match_info["run"])


def _token(name: str) -> str:
    try:
        return subjects.token(name, "run")
    except subjects.BadToken as error:
        raise not_found(str(error)) from None


def _wanted(query: Mapping[str, str]) -> Wanted:
    result = query.get("result")
    if result not in (None, "", "rewarded", "failed"):
        raise invalid("result must be rewarded or failed")
    return Wanted(
        agent=query.get("agent") or None,
        task_index=_given(query, "task", _index),
        failed=result == "failed" if result else None,
        failure_class=query.get("failure") or None,
        least_reward=_given(query, "least_reward", float),
        most_reward=_given(query, "most_reward", float),
        least_s=_given(query, "least_s", float),
        text=query.get("text") or None,
    )


def _choice(query: Mapping[str, str], name: str, *choices: C) -> C:
    """Return one of the choices; the first if none is given."""
    given = query.get(name) or choices[0]
    found = next((choice for choice in choices if choice == given), None)
    if found is None:
        raise invalid(f"{name} must be one of {', '.join(choices)}")
    return found


def _rollout(request: web.Request) -> subjects.RolloutId:
    indices = (_index(request.match_info[name]) for name in ("task", "rollout"))
    return subjects.RolloutId(_run(request), *indices)


def _given(query: Mapping[str, str], name: str, read: Callable[[str], T]) -> T | None:
    """Return a parameter of a query, or None if it is not given."""
    text = query.get(name)
    if not text:
        return None
    try:
        return read(text)
    except ValueError:
        raise invalid(f"{name}: {text:.40} is not a number") from None


def _index(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 17 else -1
    if not 0 <= number <= MOST_INDEX:
        raise not_found(f"{text:.40} is not an index")
    return number
