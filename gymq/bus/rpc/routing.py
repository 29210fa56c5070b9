"""Choosing the replica of a model for a call: the one that holds its prefix, or else one with little load.

Replicas publish their load. While none does, calls go to the queue group unchanged.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from gymq.bus import Bus, Msg
from gymq.bus.rpc.admission import KvBudget
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.process_reports import tokens_used
from gymq.bus.rpc.serving import Server
from gymq.failures import RolloutError
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.conversation import ConversationItems, HeldConversation
from gymq.protocol.messages import (
    BadMessage,
    Call,
    FailureClass,
    Generate,
    Generated,
    GenerateNext,
    Message,
    NeedsPrefix,
)
from gymq.protocol.replica_messages import Load

EXPIRES_S = 3.0  # a replica that published no load for so long is not asked by name

_decode = Decoder(Load)


class _Replica:
    __slots__ = ("heard_at", "is_full", "kv_cache_tokens", "load", "num_callers", "running", "waiting", "worker")

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.heard_at = 0.0
        self.running = self.waiting = 0
        self.load = 0  # as it said, and the calls sent to it since
        self.is_full = False
        self.kv_cache_tokens = 0
        self.num_callers = 0

    def update(self, load: Load, now: float) -> None:
        self.heard_at = now
        self.running, self.waiting = load.running, load.waiting
        self.load = load.running + load.waiting
        self.kv_cache_tokens, self.num_callers = load.kv_cache_tokens, load.num_callers
        self.is_full = load.waiting > 0 and (load.kv_cache_use >= 0.95 or load.waiting >= load.running)


class Routes:
    """The replicas of all models and the places of sessions, as far as this process knows them.

    Attributes:
        admission: how many rollouts this process may have at work with them, by model.
    """

    def __init__(self, bus: Bus, server: Server | None = None) -> None:
        """Prepare the routes of a process.

        Args:
            server: of the services of this process.
        """
        self.admission: defaultdict[str, KvBudget] = defaultdict(KvBudget)
        self._bus = bus
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._models: dict[str, dict[str, _Replica]] = {}
        self._holders: OrderedDict[tuple[str, str], str] = OrderedDict()  # by model and session

    async def start(self) -> None:
        """Listen to the replicas from now on."""
        await self._bus.listen(subjects.LOAD.wildcard, self._on_load)

    def _on_load(self, message: Msg) -> None:
        try:
            load = _decode(message.data)
        except BadMessage:
            return
        now = self._loop.time()
        model = message.subject.rpartition(".")[2]
        replicas = self._models.setdefault(model, {})
        replicas.setdefault(load.worker, _Replica(load.worker)).update(load, now)
        for worker in [replica.worker for replica in replicas.values() if now - replica.heard_at > EXPIRES_S]:
            del replicas[worker]
        num_tokens = sum(replica.kv_cache_tokens for replica in replicas.values())
        num_callers = max(replica.num_callers for replica in replicas.values())
        if self.here(subjects.MODEL.of(model)):
            num_callers = max(num_callers, len(replicas))  # the callers of a replica in their process ask no other
        budget = self.admission[model]
        budget.share(num_tokens, num_callers)
        running = sum(replica.running for replica in replicas.values())
        budget.follow(running, sum(replica.waiting for replica in replicas.values()))

    def choose(self, model: str, session: str) -> str:
        """Choose the replica to ask first; empty: any of the group may take the call.

        It is where the session was last, unless that replica is full and another is not. Otherwise it is the less busy
        of two that are chosen at random, so that not all callers choose the same idle replica.
        """
        now = self._loop.time()
        known = self._models.get(model, {}).values()
        replicas = [replica for replica in known if now - replica.heard_at <= EXPIRES_S]
        if not replicas:
            return ""
        available = [replica for replica in replicas if not replica.is_full] or replicas
        holder = self._holders.get((model, session))
        chosen = next((replica for replica in available if replica.worker == holder), None)
        if chosen is None:
            chosen = min(random.sample(available, min(2, len(available))), key=lambda replica: replica.load)
        chosen.load += 1
        return chosen.worker

    def here(self, subject: str) -> str:
        """Return the replica in this process, if it has a slot for a call; empty: there is none."""
        return "" if self._server is None or self._server.serving(subject) is None else self._server.worker

    def silent(self, model: str, worker: str) -> None:
        """Do not choose a replica that did not answer until it publishes its load again."""
        self._models.get(model, {}).pop(worker, None)

    def answered(self, model: str, session: str, worker: str) -> None:
        """Remember the replica that answered."""
        if worker and len(self._models.get(model, ())) > 1:
            self._holders[model, session] = worker
            self._holders.move_to_end((model, session))
            if len(self._holders) > 65_536:
                self._holders.popitem(last=False)


class RoutedCalls:
    """The calls of agents: those to a model go to the replica that suits them, and carry only what it does not keep."""

    def __init__(self, calls: Calls, routes: Routes) -> None:
        self._calls = calls
        self._routes = routes

    async def call(self, subject: str, request: Call) -> Message:
        """Return the reply to a request.

        Raises:
            RolloutError: there is no reply.
        """
        if not isinstance(request, Generate):
            return await self._calls.call(subject, request)
        model = subject.rpartition(".")[2]
        budget = self._routes.admission[model]
        await budget.turn(request.rollout)
        conversation = request.params.get("input")
        if isinstance(conversation, ConversationItems):
            reply = await self._continue(subject, model, request, conversation)
        else:
            reply = await self._ask(subject, model, request)
        if budget.limit is not None and isinstance(reply, Generated):
            budget.answered(request.rollout, tokens_used(reply.response).total)
        return reply

    async def _continue(self, subject: str, model: str, request: Generate, conversation: ConversationItems) -> Message:
        """Send what is new in a conversation, and all of it to a worker that does not keep the rest."""
        num_held = conversation.num_held(model)
        held = conversation.held if num_held else None
        conversation.held = None
        sent = list(conversation)
        loop = asyncio.get_running_loop()
        give_up = loop.time() + request.timeout_s
        params = {name: value for name, value in request.params.items() if name != "input"}
        next_call = GenerateNext(
            rollout=request.rollout,
            timeout_s=request.timeout_s,
            num_lost=request.num_lost,
            params=params,
            items=cast(list[dict[str, Any]], sent[num_held:]),
            session=request.session,
            after=None if held is None else held.state,
            num_items=num_held,
        )
        reply = await self._ask(subject, model, next_call)
        if isinstance(reply, NeedsPrefix):
            whole = msgspec.structs.replace(
                next_call,
                timeout_s=max(give_up - loop.time(), 0.001),
                items=cast(list[dict[str, Any]], sent),
                after=None,
                num_items=0,
            )
            reply = await self._ask(subject, model, whole, worker=reply.worker)
        if not isinstance(reply, Generated):
            text = f"a worker of {model} asks for a prefix that it was sent"
            raise RolloutError(FailureClass.MODEL_FAILED, text)
        if reply.state is not None:
            output = reply.response.get("output")
            if isinstance(output, list):
                conversation.held = HeldConversation(model, reply.worker, reply.state, [*sent, *output])
        return reply

    async def _ask(self, subject: str, model: str, request: Generate | GenerateNext, *, worker: str = "") -> Message:
        """Ask one replica after the other: the given one or that of this process, then those that the routes choose."""

        def replicas() -> Iterator[str]:
            chosen = worker or self._routes.here(subject) or self._routes.choose(model, request.session)
            while True:
                yield subjects.REPLICA.of(model, chosen) if chosen else ""
                self._routes.silent(model, chosen)
                chosen = self._routes.choose(model, request.session)

        reply = await self._calls.call(subject, request, one=replicas().__next__)
        if isinstance(reply, Generated | NeedsPrefix):
            self._routes.answered(model, request.session, reply.worker)
        return reply

    async def send(self, subject: str, request: Call) -> None:
        """Send without waiting for an answer."""
        await self._calls.send(subject, request)
