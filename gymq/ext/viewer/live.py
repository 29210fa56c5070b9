"""Server-sent events: changes are sent to viewers as they happen, until the client leaves or the bridge shuts down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from gymq.bus import BusError
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.data.failure_status import StatusError
from gymq.ext.http.context import ReadContext
from gymq.ext.http.errors import not_found
from gymq.ext.viewer.in_flight import RolloutProgress, tasks_in_flight
from gymq.ext.viewer.rollout_view import attempt_of, done_items, stored_view, unfinished_view
from gymq.ext.viewer.run_views import RunViews
from gymq.protocol.messages import Task
from gymq.protocol.tokens import to_json

EVERY_S = 1.0  # how often is looked
QUIET_S = 15.0  # a comment is sent after so long, so that proxies keep the connection

Event = tuple[str, Any]


class Listeners:
    """The connections of a bridge that receive events."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._number = 0

    async def stream(self, request: web.Request, events: AsyncIterator[Event | None]) -> web.StreamResponse:
        """Send events until there are no more.

        Args:
            events: names and bodies; None now and then, when there is nothing to report.

        Raises:
            StatusError: 503; there are too many connections already.
        """
        most = 64  # connections to which events are sent
        if self._number >= most:
            raise StatusError(503, "saturated", f"{most} pages are already connected")
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        loop = asyncio.get_running_loop()
        bus = self._context.bus
        self._number += 1
        try:
            first = await anext(events)  # an error of the request becomes a status
            await stream.prepare(request)
            sent_at = loop.time()
            if first is not None:
                await stream.write(_event(*first))
            async for event in events:
                if self._context.draining or self._context.bus is not bus:
                    break  # the page connects again, and reads from the new bus
                if event is not None:
                    await stream.write(_event(*event))
                elif loop.time() - sent_at > QUIET_S:
                    await stream.write(b": quiet\n\n")
                else:
                    continue
                sent_at = loop.time()
        finally:
            self._number -= 1
        return stream


async def run_events(views: RunViews, run: str) -> AsyncIterator[Event | None]:
    """Yield the numbers of a run whenever they have changed; None if they have not.

    Raises:
        StatusError: 404; there is no such run.
        BusError: the first read failed; later failures yield None.
    """
    view = await views.view(run)
    yield "run", view
    while True:
        await asyncio.sleep(EVERY_S)
        before = view
        try:
            view = await views.view(run)
        except BusError:
            yield None
            continue
        yield None if view is before else ("run", view)


async def rollout_events(
    context: ReadContext, store: OutcomeStore, views: RunViews, run: str, task_index: int, rollout_index: int
) -> AsyncIterator[Event | None]:
    """Yield a rollout as it grows: its task, then the actions of its agent, and finally the stored rollout.

    Raises:
        StatusError: 404, before the first event; its run has ended without it.
        BusError: the first read failed; later failures yield None.
    """
    progress = RolloutProgress(run, task_index, rollout_index)
    task: Task | None = None
    seen: dict[str, int] = {}  # tasks of other rollouts
    is_shown = False
    while True:
        try:
            found = await store.find_outcome(run, task_index, rollout_index)
            if found is not None:
                yield "stored", stored_view(found[1]) | {"has_next_task": await views.has_task(run, task_index + 1)}
                return
            if task is None:
                in_flight = tasks_in_flight(context.bus, run, seen)
                key = (task_index, rollout_index)
                task = await anext((one async for one in in_flight if (one.task_index, one.rollout_index) == key), None)
                is_shown = is_shown and task is None
            if task is None and not is_shown:
                await _check_unfinished(views, run, task_index, rollout_index)
            new_from = await progress.read(context.bus)
        except BusError:
            if not is_shown:
                raise
            yield None
            await asyncio.sleep(EVERY_S)
            continue
        if not is_shown:
            is_shown, new_from = True, 0
            yield "unfinished", unfinished_view(run, task_index, rollout_index, task, progress.attempt)
        if new_from is None:
            yield None
        else:
            # All effects are made items again where a new attempt began; else only what is new.
            kept = len(done_items(progress.effects[:new_from]))
            yield (
                "items",
                {
                    "from": kept,
                    "items": done_items(progress.effects[new_from:]),
                    "attempt": attempt_of(task, progress.attempt),
                    "worker": progress.worker,
                },
            )
        await asyncio.sleep(EVERY_S)


async def _check_unfinished(views: RunViews, run: str, task_index: int, rollout_index: int) -> None:
    """Check that a rollout that is nowhere yet may still come.

    Raises:
        StatusError: 404; its run has ended.
        BusError
    """
    try:
        is_done = (await views.view(run)).is_done
    except StatusError:  # no record of the run is stored yet: its tasks may come first
        return
    if is_done:
        raise not_found(f"run {run} has no task {task_index} rollout {rollout_index}: it has ended without it")


def _event(name: str, body: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + to_json(body) + b"\n\n"
