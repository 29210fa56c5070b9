"""Routes of the viewer and its data, below `/ui`. Everything but the viewer's own files needs the bridge's key."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, get_args

import msgspec
from aiohttp import web

from gymq.bus import Bus, BusError, NoAnswer
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.queue.steering import Retuning
from gymq.bus.streams import TASKS
from gymq.data.failure_status import StatusError
from gymq.ext.http.context import NEXT_BUS_S, ReadContext
from gymq.ext.http.errors import invalid, not_found, run_not_found
from gymq.ext.http.requests import JSON, Handler, read_body
from gymq.ext.rollout_files.shown import exact_record
from gymq.ext.shared.cluster_state import read_queues, read_workers
from gymq.ext.shared.runs_here import rescoring_here
from gymq.ext.viewer.actions import Description, RunActions, refused_change
from gymq.ext.viewer.in_flight import tasks_in_flight
from gymq.ext.viewer.live import Listeners, rollout_events, run_events
from gymq.ext.viewer.log_lines import newest_lines
from gymq.ext.viewer.queries import choice, given, index, rollout_of, run_named, run_of, wanted_of
from gymq.ext.viewer.rendering import MAX_BYTES, MOST_TEXTS, Rendering, RichText
from gymq.ext.viewer.rollout_list import RolloutList
from gymq.ext.viewer.rollout_view import stored_view, tokens_of_item
from gymq.ext.viewer.run_configuration import configuration_view
from gymq.ext.viewer.run_index import SORTS, Order, RunIndexes
from gymq.ext.viewer.run_list import RUN_SORTS, RunList
from gymq.ext.viewer.run_views import RunViews
from gymq.ext.viewer.site import HEADERS, PAGE, Site
from gymq.ext.viewer.token_texts import TokenTexts
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import Outcome
from gymq.protocol.tokens import to_json
from gymq.runs.stored_runs import Runs

MOST_MORE = 6  # runs beside the two that are compared

_RUN = "/ui/api/runs/{run}"
_ROLLOUT = "/ui/api/rollouts/{run}/{task}/{rollout}"

_decode_description = msgspec.json.Decoder(Description).decode
_decode_retuning = msgspec.json.Decoder(Retuning).decode
_decode_texts = msgspec.json.Decoder(Annotated[list[RichText], msgspec.Meta(max_length=MOST_TEXTS)]).decode


class WebRoutes:
    def __init__(self, context: ReadContext) -> None:
        """Prepare the routes.

        Raises:
            UsageError: the tokenizer cannot be read.
        """
        self._context = context
        self._token_texts = None if context.tokenizer is None else TokenTexts(context.tokenizer)
        self._site = Site()
        self._listeners = Listeners(context)
        self._rendering = Rendering()

    def read_from(self, bus: Bus) -> None:
        """Serve the requests that wait for a bus, and all later ones, from this one."""
        context = self._context
        context.bus = bus
        context.has_bus.set()
        self._views = RunViews(bus, has_workers=context.has_workers)
        self._runs = RunList(bus, has_workers=context.has_workers)
        self._records = Runs(bus)
        self._actions = RunActions(bus)
        self._list = RolloutList(bus)
        self._indexes = RunIndexes(bus)
        self._store = OutcomeStore(bus)

    def routes(self) -> list[web.RouteDef]:
        read, change = self._reading, self._changing
        return [
            web.get("/ui", self.to_page),
            web.get("/ui/", self.page),
            web.get("/ui/api/runs", read(self.runs)),
            web.get("/ui/api/cluster", read(self.cluster)),
            web.get(_RUN, read(self.run)),
            web.get(f"{_RUN}/live", read(self.run_live)),
            web.get(f"{_RUN}/rollouts", read(self.rollouts)),
            web.get(f"{_RUN}/in-flight", read(self.in_flight)),
            web.get(f"{_RUN}/tasks", read(self.tasks)),
            web.get(f"{_RUN}/table", read(self.table)),
            web.get(f"{_RUN}/compared/{{other}}", read(self.compared)),
            web.get(f"{_RUN}/charts", read(self.charts)),
            web.get(f"{_RUN}/failing", read(self.failing)),
            web.get(f"{_RUN}/configuration", read(self.configuration)),
            web.get(f"{_RUN}/rescoring", read(self.rescoring)),
            web.get(f"{_RUN}/export", read(self.export)),
            web.post(f"{_RUN}/cancel", change(self.cancel)),
            web.post(f"{_RUN}/pause", change(self.pause)),
            web.post(f"{_RUN}/resume", change(self.resume)),
            web.post(f"{_RUN}/retune", change(self.retune)),
            web.post(f"{_RUN}/requeue", change(self.requeue)),
            web.post(f"{_RUN}/description", change(self.describe)),
            web.get("/ui/api/logs", read(self.logs)),
            web.get("/ui/api/site", self._admitted(self.site)),
            web.get("/ui/api/notice", self._admitted(self.notice)),
            web.get(f"{_ROLLOUT}/neighbours", read(self.neighbours)),
            web.get(_ROLLOUT, read(self.rollout)),
            web.get(f"{_ROLLOUT}/live", read(self.rollout_live)),
            web.get(f"{_ROLLOUT}/record", read(self.record)),
            web.get(f"{_ROLLOUT}/failures", read(self.failures)),
            web.post(f"{_ROLLOUT}/requeue", change(self.requeue_rollout)),
            web.get(f"{_ROLLOUT}/tokens/{{item}}", read(self.tokens)),
            web.post("/ui/api/rendered", read(self.rendered)),
            web.get("/ui/{file}", self.file),
        ]

    async def to_page(self, _request: web.Request) -> web.Response:
        return web.Response(status=308, headers={"Location": "/ui/"})

    async def page(self, _request: web.Request) -> web.Response:
        self._rendering.start()
        return self._site.response(PAGE)

    async def file(self, request: web.Request) -> web.Response:
        return self._site.response(request.match_info["file"])

    async def runs(self, request: web.Request) -> web.Response:
        query = request.query
        skip = given(query, "skip", index) or 0
        sort = choice(query, "sort", *RUN_SORTS)
        is_descending = choice(query, "order", "down", "up") == "down"
        return _answer(await self._runs.page(skip, query.get("text", ""), sort, is_descending=is_descending))

    async def cluster(self, request: web.Request) -> web.Response:
        bus = self._context.bus
        queues = [queue for queue in await read_queues(bus.js, TASKS) if queue.agent is not None]
        return _answer({"is_here": self._context.has_workers, "queues": queues, "workers": await read_workers(bus)})

    async def run(self, request: web.Request) -> web.Response:
        return _answer(await self._views.view(run_of(request)))

    async def run_live(self, request: web.Request) -> web.StreamResponse:
        return await self._listeners.stream(request, run_events(self._views, run_of(request)))

    async def rollouts(self, request: web.Request) -> web.Response:
        """Return a page of rollouts: those before a position, or the matching ones after it."""
        run, query = run_of(request), request.query
        before = given(query, "before", index)
        if before is not None:
            return _answer(await self._list.before(run, before))
        return _answer(await self._list.after(run, given(query, "after", index) or 0, wanted_of(query)))

    async def in_flight(self, request: web.Request) -> web.Response:
        """Return rollouts of a run that are in flight."""
        run, context = run_of(request), self._context
        found: list[dict[str, Any]] = []
        if context.has_workers:
            async for task in tasks_in_flight(context.bus, run):
                found.append({name: getattr(task, name) for name in ("task_index", "rollout_index", "agent")})
                if len(found) == 200:
                    break
        return _answer(found)

    async def table(self, request: web.Request) -> web.Response:
        """Return a page of rollouts that match, sorted."""
        query = request.query
        sort = query.get("sort", "")
        if "." not in sort:  # a field of rows or verdicts
            sort = choice(query, "sort", *SORTS)
        skip = given(query, "skip", index) or 0
        is_descending = choice(query, "order", "up", "down") == "down"
        wanted = wanted_of(query)
        return _answer(await self._indexes.page(run_of(request), wanted, sort, is_descending=is_descending, skip=skip))

    async def tasks(self, request: web.Request) -> web.Response:
        """Return a page of tasks with the rewards of their rollouts."""
        query = request.query
        sort, shown = choice(query, "sort", "task", "mean", "spread"), choice(query, "show", "all", "uniform")
        skip = given(query, "skip", index) or 0
        return _answer(await self._indexes.tasks(run_of(request), sort, is_uniform=shown == "uniform", skip=skip))

    async def compared(self, request: web.Request) -> web.Response:
        """Return this run and others task by task, with the paired differences."""
        query = request.query
        more = [name for name in query.get("more", "").split(",") if name]
        if len(more) > MOST_MORE:
            raise invalid(f"more: {MOST_MORE + 2} runs at most are compared")
        others = [run_named(name) for name in (request.match_info["other"], *more)]
        sort = choice(query, "sort", "task", "worse", "better")
        skip, around = given(query, "skip", index) or 0, given(query, "around", index)
        return _answer(await self._indexes.comparison(run_of(request), others, sort, skip, around=around))

    async def charts(self, request: web.Request) -> web.Response:
        return _answer(await self._indexes.charts(run_of(request)))

    async def failing(self, request: web.Request) -> web.Response:
        """Return the failures of a run by class and message."""
        return _answer(await self._indexes.failure_groups(run_of(request)))

    async def configuration(self, request: web.Request) -> web.Response:
        """Return the options of a run and its workers, as they were stored when it began."""
        run = run_of(request)
        record = await self._records.record(run)
        if record is None and not await self._records.exists(run):
            raise run_not_found(run)
        stored = b"" if record is None else record.configuration
        return _answer(await asyncio.to_thread(configuration_view, stored))

    async def rescoring(self, request: web.Request) -> web.Response:
        """Return what there is to verify again in the files of a run, if they are in the folder of this process."""
        return _answer(await asyncio.to_thread(rescoring_here, run_of(request)))

    async def logs(self, request: web.Request) -> web.Response:
        """Return the newest log lines of a worker or about a rollout."""
        folder, query = self._context.logs, request.query
        if folder is None:
            return _answer({"lines": [], "is_here": False})
        worker, rollout = query.get("worker") or None, query.get("rollout") or None
        lines = await asyncio.to_thread(newest_lines, folder, worker=worker, rollout=rollout)
        return _answer({"lines": lines, "is_here": True})

    async def site(self, request: web.Request) -> web.Response:
        """Return what this viewer can do beside showing."""
        return _answer({"may_change": self._context.may_change, "has_logs": self._context.logs is not None})

    async def notice(self, request: web.Request) -> web.Response:
        """Return what is the matter with the cluster, as a sentence; empty: nothing."""
        return _answer({"notice": self._context.notice()})

    async def export(self, request: web.Request) -> web.StreamResponse:
        """Return all rollouts of a run as JSONL."""
        run = run_of(request)
        lines = self._actions.lines(run)
        first = await anext(lines)
        headers = {"Content-Disposition": f'attachment; filename="{run}.jsonl"', "Cache-Control": "no-store"}
        stream = web.StreamResponse(headers={**headers, "Content-Type": "application/jsonl"})
        await stream.prepare(request)
        await stream.write(first + b"\n")
        async for line in lines:
            await stream.write(line + b"\n")
        return stream

    async def cancel(self, request: web.Request) -> web.Response:
        return _answer({"num_queued": await self._actions.cancel(run_of(request))})

    async def pause(self, request: web.Request) -> web.Response:
        return _answer(await self._actions.pause(run_of(request), paused=True))

    async def resume(self, request: web.Request) -> web.Response:
        return _answer(await self._actions.pause(run_of(request), paused=False))

    async def retune(self, request: web.Request) -> web.Response:
        """Change a run's share of the workers, its priority or its limit."""
        try:
            changes = _decode_retuning(await self._body(request))
        except UNDECODABLE as error:
            raise invalid(f"the body is not a change of a run: {error}") from None
        return _answer(await self._actions.retune(run_of(request), changes))

    async def requeue(self, request: web.Request) -> web.Response:
        """Requeue the failed rollouts of a run."""
        return _answer(await self._actions.requeue_failures(run_of(request)))

    async def requeue_rollout(self, request: web.Request) -> web.Response:
        """Requeue a failed rollout."""
        return _answer(await self._actions.requeue_rollout(rollout_of(request)))

    async def describe(self, request: web.Request) -> web.Response:
        """Store a note and tags with a run."""
        body = await self._body(request)
        try:
            description = _decode_description(body)
        except UNDECODABLE as error:
            raise invalid(f"the body is not a note with tags: {error}") from None
        changed = await self._actions.describe(run_of(request), description)
        return _answer({"note": changed.note, "tags": changed.tags})

    def _admitted(self, handler: Handler) -> Handler:
        """Return a handler that serves only requests that may be served, see `ReadContext.admit`."""

        async def handle(request: web.Request) -> web.StreamResponse:
            self._context.admit(request)
            return await handler(request)

        return handle

    def _reading(self, handler: Handler) -> Handler:
        """Return a handler of admitted requests that need the bus; what is read is read again from the next bus."""

        async def handle(request: web.Request) -> web.StreamResponse:
            context, now = self._context, asyncio.get_running_loop().time
            give_up = now() + NEXT_BUS_S
            while True:
                bus = await context.current_bus()
                try:
                    return await handler(request)
                except BusError as error:
                    is_away = bool(context.notice()) or context.bus is not bus or not context.has_bus.is_set()
                    if not is_away and not isinstance(error, NoAnswer):  # a server that ends is noticed after that
                        raise
                    if request.method != "GET" or now() > give_up:
                        raise StatusError(503, "no_server", context.notice() or str(error)) from None
                await asyncio.sleep(0.2)

        return self._admitted(handle)

    def _changing(self, handler: Handler) -> Handler:
        """Return a handler that serves only requests that may change a run.

        Others get 403, as this viewer only shows, or 415: they are not JSON, which pages of other origins cannot send
        without permission.
        """

        async def handle(request: web.Request) -> web.StreamResponse:
            if not self._context.may_change:
                raise refused_change()
            if request.content_type != JSON:
                raise StatusError(415, "not_json", f"the request needs the header `Content-Type: {JSON}`")
            return await handler(request)

        return self._reading(handle)

    async def _body(self, request: web.Request) -> bytes:
        return await read_body(request, max_bytes=MAX_BYTES, timeout_s=self._context.body_timeout_s)

    async def neighbours(self, request: web.Request) -> web.Response:
        """Return the rollouts before and after one."""
        order = choice(request.query, "order", *get_args(Order))
        return _answer(await self._indexes.neighbours(*rollout_of(request), order))

    async def rollout(self, request: web.Request) -> web.Response:
        return _answer(stored_view(await self._outcome(request)))

    async def rollout_live(self, request: web.Request) -> web.StreamResponse:
        events = rollout_events(self._context, self._store, self._views, *rollout_of(request))
        return await self._listeners.stream(request, events)

    async def record(self, request: web.Request) -> web.Response:
        """Return a rollout exactly as it is stored, as JSON."""
        return _json_answer(exact_record(await self._outcome(request)))

    async def failures(self, request: web.Request) -> web.Response:
        """Return the failures of a rollout that were reported, also those that a later outcome replaced."""
        return _answer(await self._views.failures_of(rollout_of(request)))

    async def tokens(self, request: web.Request) -> web.Response:
        """Return the tokens of one item of a rollout's output."""
        item = index(request.match_info["item"])
        found = tokens_of_item(await self._outcome(request), item)
        if self._token_texts is not None:
            found["texts"] = await asyncio.to_thread(self._token_texts.texts, found["ids"])
        return _answer(found)

    async def rendered(self, request: web.Request) -> web.Response:
        """Return texts that the page has as trees of elements, in order; null for one to be shown as it is."""
        body = await self._body(request)
        try:
            sources = _decode_texts(body)
        except UNDECODABLE as error:
            raise invalid(f"the body is not a list of texts: {error}") from None
        return _answer(await self._rendering.render(sources))

    def close(self) -> None:
        """End the processes that render texts."""
        self._rendering.close()

    async def _outcome(self, request: web.Request) -> Outcome:
        of = rollout_of(request)
        found = await self._store.find_outcome(*of)
        if found is None:
            raise not_found("run {} has no outcome of task {} rollout {}".format(*of))
        return found[1]


def _answer(value: Any) -> web.Response:
    return _json_answer(to_json(value))


def _json_answer(body: bytes) -> web.Response:
    headers = {"X-Content-Type-Options": HEADERS["X-Content-Type-Options"], "Cache-Control": "no-store"}
    return web.Response(body=body, content_type=JSON, headers=headers)
