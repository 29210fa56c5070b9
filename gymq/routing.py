"""Which replica of a model a call goes to first: the one that holds its prefix, or else one that has little to do.

Replicas tell their load. With one replica, or while none tells its load, calls go to the queue group as they are.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict

from nats.aio.msg import Msg

from gymq import subjects
from gymq.bus import Bus
from gymq.calls import Calls
from gymq.messages import BadMessage, Call, Generate, Generated, Load, Message, decoder

EXPIRES_S = 3.0  # a replica that has told nothing for so long is not asked by name
KV_CACHE_FULL = 0.95
MAX_SESSIONS = 65_536  # whose replica is remembered in a process

_decode = decoder(Load)


class _Replica:
    __slots__ = ("heard_at", "is_full", "load", "worker")

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.heard_at = 0.0
        self.load = 0  # as it said, and the calls sent to it since
        self.is_full = False

    def hear(self, load: Load, now: float) -> None:
        self.heard_at = now
        self.load = load.running + load.waiting
        self.is_full = load.waiting > 0 and (load.kv_cache_use >= KV_CACHE_FULL or load.waiting >= load.running)


class Routes:
    """What this process knows of the replicas of all models, and of where its sessions are."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._models: dict[str, dict[str, _Replica]] = {}
        self._holders: OrderedDict[tuple[str, str], str] = OrderedDict()  # by model and session

    async def start(self) -> None:
        """Listen to the replicas from now on."""
        await self._bus.subscribe(subjects.ALL_LOADS, self._on_load)

    async def _on_load(self, message: Msg) -> None:
        try:
            load = _decode(message.data)
        except BadMessage:
            return
        now = self._loop.time()
        replicas = self._models.setdefault(message.subject.rpartition(".")[2], {})
        replicas.setdefault(load.worker, _Replica(load.worker)).hear(load, now)
        for worker in [one.worker for one in replicas.values() if now - one.heard_at > EXPIRES_S]:
            del replicas[worker]

    def choose(self, model: str, session: str) -> str:
        """The replica to ask first; empty: whoever of the group takes the call.

        That is where the session was last, unless it is full and another is not. Otherwise it is the one of two,
        chosen at random, that has less to do: of those that all callers see as idle, not all take the same.
        """
        known = self._models.get(model)
        if known is None or len(known) < 2:
            return ""
        now = self._loop.time()
        replicas = [one for one in known.values() if now - one.heard_at <= EXPIRES_S]
        if len(replicas) < 2:
            return ""
        with_room = [one for one in replicas if not one.is_full] or replicas
        holder = self._holders.get((model, session))
        chosen = next((one for one in with_room if one.worker == holder), None)
        if chosen is None:
            chosen = min(random.sample(with_room, min(2, len(with_room))), key=lambda one: one.load)
        chosen.load += 1
        return chosen.worker

    def answered(self, model: str, session: str, chosen: str, worker: str) -> None:
        """Remember who answered; one that was asked and did not is asked no more until it tells its load again."""
        if chosen not in ("", worker):
            self._models.get(model, {}).pop(chosen, None)
        if worker and len(self._models.get(model, ())) > 1:
            self._holders[model, session] = worker
            self._holders.move_to_end((model, session))
            if len(self._holders) > MAX_SESSIONS:
                self._holders.popitem(last=False)


class RoutedCalls:
    """The calls of agents: those to a model go to the replica that suits them."""

    def __init__(self, calls: Calls, routes: Routes) -> None:
        self._calls = calls
        self._routes = routes

    async def call(self, subject: str, request: Call) -> Message:
        """Raises RolloutError when there is no reply."""
        if not isinstance(request, Generate):
            return await self._calls.call(subject, request)
        model = subject.rpartition(".")[2]
        chosen = self._routes.choose(model, request.session)
        first = subjects.replica(model, chosen) if chosen else ""
        reply = await self._calls.call(subject, request, first=first)
        if isinstance(reply, Generated):
            self._routes.answered(model, request.session, chosen, reply.worker)
        return reply

    async def tell(self, subject: str, request: Call) -> None:
        """Send without waiting for an answer."""
        await self._calls.tell(subject, request)
