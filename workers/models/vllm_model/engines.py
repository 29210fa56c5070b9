"""All engines of one worker: each session stays with one of them, as long as that one is up, fast and not full."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from gymq.workers.models.openai_model.connection import check_url
from gymq.workers.models.vllm_model.asked import Exchange, readable
from gymq.workers.models.vllm_model.balancer import Balancer, Sent
from gymq.workers.models.vllm_model.engine import AskedOverHTTP, Engine, Unavailable
from gymq.workers.models.vllm_model.engine_sources import EngineSources
from gymq.workers.models.vllm_model.options import VLLMOptions

import gymq
from gymq.authoring import current_call
from gymq.fair_queue import FairQueue
from gymq.processes.background import RunningTasks

log = logging.getLogger("gymq.vllm_model")

MAX_ENGINES_PER_REQUEST = 3
REPORT_EVERY_S = 0.5  # of an engine that reports its load
LOOK_EVERY_S = 30.0  # at one that does not
SOURCES_EVERY_S = 2.0


@dataclass(eq=False)
class _Request:
    """A request that waits for its turn, which is an engine."""

    session: str
    tried: set[str]
    turn: asyncio.Future[tuple[Engine, Sent]]


class Engines:
    """Asks the engine of a session, or another one if that is down, slow or full."""

    def __init__(self, options: VLLMOptions) -> None:
        self._options = options
        self._sources = EngineSources(options.base_url)
        self._balancer = Balancer()
        if options.request_limit is not None:
            self._balancer.limit = options.request_limit
        self._engines: dict[str, Engine] = {}
        self._limit = options.request_limit
        self._waiting: FairQueue[_Request] = FairQueue()
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._leaving = RunningTasks()
        self._following: asyncio.Task[None] | None = None

    @property
    def engines(self) -> list[Engine]:
        """Return those that requests go to."""
        return list(self._engines.values())

    async def start(self) -> None:
        await self._take(await self._sources.read())
        if self._sources.can_change:
            self._following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
        for task in (*self._watches.values(), *self._leaving):
            task.cancel()
        await asyncio.gather(*self._watches.values(), *self._leaving, return_exceptions=True)
        for engine in self._engines.values():
            await engine.stop()

    async def replace(self, urls: Iterable[str]) -> None:
        """Ask these engines from now on, whatever the configuration names; those that are left out end what they have.

        Raises:
            ValueError: a URL cannot be one.
        """
        checked = [check_url(url) for url in urls]
        if self._following is not None:
            self._following.cancel()
        await self._take(checked)

    def set_limit(self, most: int) -> None:
        """Have at most so many requests on their way to one engine at a time."""
        self._limit = self._balancer.limit = most
        for engine in self._engines.values():
            engine.limit.set_most(most)
        self._let_through()

    def set_replicas(self, num_replicas: int) -> None:
        """Note how many workers ask the same engines."""
        self._balancer.num_replicas = max(1, num_replicas)

    def load(self) -> gymq.ModelLoad | None:
        """Return the requests of this worker, and its part of the KV caches; None if no engine reports its load."""
        by_name = {name: engine.reported for name, engine in self._engines.items() if engine.reported is not None}
        if not by_name:
            return None
        reports = [report for name, report in by_name.items() if not self._balancer.is_gone(name)] or [
            *by_name.values()
        ]
        num_requests = self._waiting.num_waiting + self._balancer.in_flight
        num_tokens = sum(report.kv_cache_tokens for report in reports) // self._balancer.num_replicas
        return gymq.ModelLoad(num_requests, 0, max(report.kv_cache_use for report in reports), num_tokens)

    def waits(self) -> Counter[str]:
        """Return how many requests wait until an engine has room."""
        reason = "the engines have enough to do" if self._engines else f"{self._sources}: no engine is known"
        if self._engines and all(engine.reported and engine.reported.is_paused for engine in self._engines.values()):
            reason = "the engines are paused"
        return Counter({reason: self._waiting.num_waiting})

    async def ask(self, session: str, timeout_s: float, exchange: Exchange) -> dict[str, Any]:
        """Return what `exchange` gives with the session's engine, else with the one where it waits least.

        An engine that cannot be reached or is overloaded is left alone for a while, and the request goes to another.

        Raises:
            RolloutError: the engine refused or gave an unusable reply, or no engine could be reached.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        headers = self._headers(session)
        tried: set[str] = set()
        while True:
            async with self._turn(session, tried, deadline) as (engine, sent):
                leaves = len(tried) + 1 < MAX_ENGINES_PER_REQUEST and self._balancer.has_other(
                    sent.engine, loop.time(), tried
                )
                try:
                    answer = await readable(exchange, AskedOverHTTP(engine, deadline, headers, leaves))
                except Unavailable as error:
                    self._leave(sent, error, tried)
                else:
                    self._balancer.answered(sent, loop.time())
                    if self._balancer.restore(sent.engine):
                        log.info("%s is back", engine.base_url)
                    return answer

    def _leave(self, sent: Sent, error: Unavailable, tried: set[str]) -> None:
        """Leave an engine alone for a while.

        Raises:
            Unavailable: there is no other.
        """
        now = asyncio.get_running_loop().time()
        self._balancer.eject(sent.engine, now, since=sent.at, pause_s=error.pause_s, is_gone=error.is_gone)
        tried.add(sent.engine)
        if len(tried) < min(len(self._engines), MAX_ENGINES_PER_REQUEST):
            log.warning("%s; other engines take its sessions for now", error.message)
            return
        if len(tried) > 1:
            message = f"none of {len(tried)} engines takes the request; the last: {error.message}"
            raise Unavailable(message, is_gone=error.is_gone) from None
        raise error

    @asynccontextmanager
    async def _turn(self, session: str, tried: set[str], deadline: float) -> AsyncIterator[tuple[Engine, Sent]]:
        """Wait for an engine that has room, and count the request there.

        Raises:
            RolloutError: none had room in time.
        """
        loop = asyncio.get_running_loop()
        request = _Request(session, tried, loop.create_future())
        is_queued = not self._balancer.is_at_home(session, loop.time(), tried)
        if is_queued:
            call = current_call.get()
            self._waiting.add(request, call.rollout, call.precedence)
            self._let_through()
        else:
            self._give(request)
        try:
            if not request.turn.done():
                try:
                    async with asyncio.timeout_at(deadline):
                        await asyncio.wait((request.turn,))
                except TimeoutError:
                    (reason,) = self.waits()
                    raise gymq.RolloutError(gymq.FailureClass.DEADLINE_EXCEEDED, f"not sent: {reason}") from None
            yield request.turn.result()
        finally:
            if request.turn.done():
                engine, sent = request.turn.result()
                engine.num_users -= 1
                self._balancer.ended(sent, loop.time())
            if is_queued:
                self._waiting.end(request)
            self._let_through()

    def _let_through(self) -> None:
        """Give requests that wait to the engines that have room."""
        now = asyncio.get_running_loop().time()
        while self._waiting.num_waiting and self._balancer.choose("", now) is not None:
            self._give(self._waiting.pop())

    def _give(self, request: _Request) -> None:
        """Give a request to an engine, of which one has room or has its session."""
        now = asyncio.get_running_loop().time()
        name = self._balancer.choose(request.session, now, request.tried) or self._balancer.choose("", now)
        if name is not None:
            engine = self._engines[name]
            engine.num_users += 1
            request.turn.set_result((engine, self._balancer.sent(request.session, name, now)))

    def _headers(self, session: str) -> dict[str, str]:
        """Return the header by which a router in front of engines keeps a session together."""
        name = self._options.session_affinity_header
        if not name or not session:
            return {}
        return {name: hashlib.sha256(session.encode()).hexdigest()[:32]}

    async def _take(self, urls: Iterable[str]) -> None:
        """Ask these engines and no others from now on."""
        wanted = list(dict.fromkeys(urls))
        for url in wanted:
            if url not in self._engines:
                engine = self._engines[url] = Engine(url, self._options)
                if self._limit is not None:
                    engine.limit.set_most(self._limit)
                await engine.start()
        left = {url: self._engines.pop(url) for url in [*self._engines] if url not in wanted}
        self._balancer.set_engines(wanted)
        for url, engine in left.items():
            self._watches.pop(url).cancel()
            self._leaving.start(_stop_when_idle(engine))
        for url in wanted:
            if url not in self._watches:
                self._watches[url] = asyncio.create_task(self._watch(url, self._engines[url]))
        self._let_through()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(SOURCES_EVERY_S)
            urls = await self._sources.read()
            if set(urls) != set(self._engines):
                log.info("%s: %s", self._sources, ", ".join(urls) or "no engine")
                await self._take(urls)

    async def _watch(self, name: str, engine: Engine) -> None:
        """Follow the load that an engine reports, and whether it can be reached."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                report = await engine.report()
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
                self._balancer.eject(name, loop.time(), since=loop.time())
            except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError
                if engine.reported is None:
                    self._balancer.reported(name, None)
            else:
                if self._balancer.is_gone(name) and self._balancer.restore(name):
                    log.info("%s is back", engine.base_url)
                self._balancer.reported(name, report)
            self._let_through()
            pause_s = LOOK_EVERY_S if engine.reported is None else REPORT_EVERY_S
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))


async def _stop_when_idle(engine: Engine) -> None:
    try:
        while engine.num_users:  # noqa: ASYNC110
            await asyncio.sleep(1.0)
    finally:
        await engine.stop()
