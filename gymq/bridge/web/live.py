"""Server-sent events: what changes is told to a page as it happens, until nobody listens or the bridge ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from aiohttp import web

from gymq.bridge.context import Context
from gymq.bridge.failures import BridgeError
from gymq.bridge.web.rollout_view import done_items, stored_view, unfinished_view
from gymq.bridge.web.run_views import RunViews
from gymq.bus import BusError
from gymq.in_progress import Progress, tasks_in_hand
from gymq.messages import Task
from gymq.outcome_store import OutcomeStore
from gymq.tokens import encode_json

EVERY_S = 1.0  # how often is looked
QUIET_S = 15.0  # a comment is sent after so long, so that proxies keep the connection
MOST_LISTENERS = 64  # connections that are told what happens
MOST_IN_HAND = 200

_encode = msgspec.json.Encoder(enc_hook=encode_json).encode

Event = tuple[str, Any]


class Listeners:
    """The connections of a bridge that are told what happens."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._number = 0

    async def tell(self, request: web.Request, events: AsyncIterator[Event | None]) -> web.StreamResponse:
        """Send events until there are no more.

        Args:
            events: names and bodies; None now and then, when there is nothing to tell.

        Raises:
            BridgeError: 503; there are too many connections already.
        """
        if self._number >= MOST_LISTENERS:
            raise BridgeError(503, "saturated", f"{MOST_LISTENERS} pages are told what happens already")
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        loop = asyncio.get_running_loop()
        self._number += 1
        try:
            first = await anext(events)  # what is wrong with the request is told as a status
            await stream.prepare(request)
            told_at = loop.time()
            if first is not None:
                await stream.write(_event(*first))
            async for event in events:
                if self._context.draining:
                    break
                if event is not None:
                    await stream.write(_event(*event))
                elif loop.time() - told_at > QUIET_S:
                    await stream.write(b": quiet\n\n")
                else:
                    continue
                told_at = loop.time()
        finally:
            self._number -= 1
        return stream


async def run_events(views: RunViews, run: str) -> AsyncIterator[Event | None]:
    """The numbers of a run, again whenever they have changed.

    Raises:
        BridgeError: 404; there is no such run.
        BusError: the first time.
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
    context: Context, store: OutcomeStore, run: str, task_index: int, rollout_index: int
) -> AsyncIterator[Event | None]:
    """A rollout as it grows: what is known of it, then what its agent does, and at its end all of it.

    Raises:
        BusError: the first time.
    """
    progress = Progress(run, task_index, rollout_index)
    task: Task | None = None
    is_shown = False
    while True:
        try:
            found = await store.find_outcome(run, task_index, rollout_index)
            if found is not None:
                yield "stored", stored_view(found[1])
                return
            if task is None:
                in_hand = await tasks_in_hand(context.bus, run, MOST_IN_HAND)
                task = next((one for one in in_hand if _is(one, task_index, rollout_index)), None)
                is_shown = is_shown and task is None
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
            kept = len(done_items(progress.done[:new_from]))
            yield (
                "items",
                {
                    "from": kept,
                    "items": done_items(progress.done[new_from:]),
                    "attempt": progress.attempt,
                    "worker": progress.worker,
                },
            )
        await asyncio.sleep(EVERY_S)


def _is(task: Task, task_index: int, rollout_index: int) -> bool:
    return (task.task_index, task.rollout_index) == (task_index, rollout_index)


def _event(name: str, body: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + _encode(body) + b"\n\n"
