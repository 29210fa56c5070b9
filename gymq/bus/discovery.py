"""Discovery: every worker answers the NATS services protocol, so `nats service ls` and `gymq status` see it.

The protocol's JSON is filled from our own counters: the client library's service endpoints handle one request at a time
and do not count what matters here (running, waiting, sessions).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Self, TypeVar

import msgspec

from gymq.bus.bus import Bus
from gymq.bus.connection import Msg, is_no_responders
from gymq.bus.errors import NoAnswer, NoResponders
from gymq.errors import BusError
from gymq.processes.background import is_set_within
from gymq.protocol import subjects
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.instances import ROLE_OF
from gymq.protocol.versions import SPOKEN, ProtocolRange

ReportT = TypeVar("ReportT")


class Identity(msgspec.Struct):
    """What every answer of a worker begins with."""

    name: str
    id: str
    version: str = ""
    metadata: dict[str, str] = {}


_version = functools.cache(version)  # reads a file
_decode_identity = msgspec.json.Decoder(Identity).decode


class ServiceListing:
    """One instance in one process, as the services protocol shows it."""

    def __init__(
        self,
        bus: Bus,
        *,
        name: str,
        worker: str,
        kind: str,
        implementation: str,
        digest: str = "",
        subjects: list[str],
        stats: Callable[[], dict[str, Any]],
    ) -> None:
        """Prepare the answers of one worker; `start` subscribes to the requests.

        Args:
            stats: returns `num_requests`, `num_errors`, `processing_s` and anything else worth showing.
        """
        self._bus = bus
        self._name = name
        self._worker = worker
        self._role = ROLE_OF[kind]
        metadata = {"kind": kind, "implementation": implementation} | ({"digest": digest} if digest else {})
        metadata |= SPOKEN.stated()
        self._identity = {"name": name, "id": worker, "version": _version("gymq"), "metadata": metadata}
        self._subjects = subjects
        self._stats = stats
        self._started = datetime.now(UTC).isoformat().replace("+00:00", "Z")

    async def start(self) -> None:
        name = subjects.instance(self._name)
        for verb in ("PING", "INFO", "STATS"):
            for suffix in ("", f".{name}", f".{name}.{self._worker}"):
                await self._bus.subscribe(f"{subjects.SERVICES}.{verb}{suffix}", self._answer)

    async def _answer(self, message: Msg) -> None:
        if not self._should_answer(message.reply):
            return
        verb = message.subject.split(".")[1]
        body: dict[str, Any] = {"type": f"io.nats.micro.v1.{verb.lower()}_response", **self._identity}
        endpoints: list[dict[str, Any]] = [{"name": subject, "subject": subject} for subject in self._subjects]
        if verb == "INFO":
            body |= {"description": "", "endpoints": endpoints}
        elif verb == "STATS":
            stats = self._stats()
            counted = {
                "num_requests": stats.pop("num_requests", 0),
                "num_errors": stats.pop("num_errors", 0),
                "last_error": "",
                "processing_time": int(stats.pop("processing_s", 0.0) * 1e9),
                "average_processing_time": 0,
                "data": stats,
            }
            counted["average_processing_time"] = counted["processing_time"] // max(1, counted["num_requests"])
            body |= {"started": self._started, "endpoints": [{**endpoints[0], **counted}, *endpoints[1:]]}
        await self._bus.publish(message.reply, msgspec.json.encode(body))

    def _should_answer(self, reply: str) -> bool:
        """Return whether a reply subject is an inbox, and not one that waits for another role."""
        if reply.startswith("_INBOX."):  # of NATS tools that have no inbox prefix
            return True
        tokens = reply.split(".")
        return reply.startswith(subjects.INBOX_PREFIX) and (
            len(tokens) != 4 or tokens[1] in (self._role, subjects.ANY_ROLE)
        )


class WorkerSearch:
    """The answers of workers that are asked once or more; of each worker the newest counts.

    Each kind of workers is asked by itself, so that those of one role cannot answer as another kind.
    """

    def __init__(self, bus: Bus, name: str = "", verb: str = "STATS") -> None:
        """Prepare a search for the workers of one instance, or of all; used with `with`, which ends it."""
        self._bus = bus
        self._subject = f"{subjects.SERVICES}.{verb}" + (f".{subjects.instance(name)}" if name else "")
        self._found: dict[tuple[str, str, str], dict[str, Any]] = {}  # by name, id and kind
        self._missing: set[str] = set()
        self._all_answered = asyncio.Event()
        self._or_nobody = False
        self._replies: list[str] = []

    def __enter__(self) -> Self:
        self._replies = [self._bus.expect(self._handler_of(kind), role) for kind, role in ROLE_OF.items()]
        return self

    def __exit__(self, *_: object) -> None:
        for reply in self._replies:
            self._bus.forget(reply)

    async def ask(
        self, wait_s: float, expected: Collection[str] = (), *, or_nobody: bool = False
    ) -> list[dict[str, Any]]:
        """Ask all workers; return the answers of those that have answered by now, sorted by name and id.

        Args:
            wait_s: seconds to wait for answers.
            expected: ids of workers; once all of them have answered, no more are waited for.
            or_nobody: if nobody is there at this moment, none is waited for.
        """
        self._missing = set(expected)
        self._or_nobody = or_nobody
        self._all_answered.clear()
        for reply in self._replies:
            await self._bus.publish(self._subject, b"", reply=reply)
        await is_set_within(self._all_answered, wait_s)
        return [self._found[worker] for worker in sorted(self._found)]

    def _handler_of(self, kind: str) -> Callable[[Msg], None]:
        def on_reply(message: Msg) -> None:
            if self._or_nobody and is_no_responders(message):
                self._all_answered.set()
            # Only what has the identity of a worker of this kind is one.
            with contextlib.suppress(msgspec.DecodeError):
                identity = _decode_identity(message.data)
                if identity.metadata.get("kind") == kind and "implementation" in identity.metadata:
                    self._found[identity.name, identity.id, kind] = msgspec.json.decode(message.data)
                    self._count(identity.id)

        return on_reply

    def _count(self, worker: str) -> None:
        if worker in self._missing:
            self._missing.discard(worker)
            if not self._missing:
                self._all_answered.set()


async def find_workers(bus: Bus, name: str = "", *, wait_s: float = 0.5, looks: int = 1) -> list[dict[str, Any]]:
    """Return the STATS answers of all workers that answer within `wait_s` seconds, sorted by name and id.

    Args:
        name: only those of this instance.
        looks: how many times to ask, until one answers: they may be too busy to do so at once.
    """
    with WorkerSearch(bus, name) as search:
        for _ in range(looks):
            if found := await search.ask(wait_s):
                return found
    return []


async def check_versions(bus: Bus) -> None:
    """Check that this process understands all others of the cluster that it joins.

    Raises:
        BusError: it does not.
    """
    with WorkerSearch(bus, verb="PING") as search:
        for found in await search.ask(0.5, or_nobody=True):
            _check_version(msgspec.convert(found, Identity))


def _check_version(found: Identity) -> None:
    spoken = ProtocolRange.read(found.metadata)
    if not spoken.meets(SPOKEN):
        raise BusError(
            f"this is gymq {version('gymq')} with {SPOKEN}, but {found.name} of the cluster is gymq {found.version} "
            f"with {spoken}; install a version here or there so that these meet"
        )


def reported(stats: dict[str, Any], name: str, form: type[ReportT]) -> ReportT | None:
    """Return what a worker reports of itself under a name; None: nothing of that form."""
    try:
        return msgspec.convert(stats["endpoints"][0]["data"][name], form)
    except (LookupError, TypeError, msgspec.ValidationError):
        return None


async def first_to_answer(bus: Bus, instance: str, role: str, *, timeout_s: float) -> Identity | None:
    """Return the worker of an instance that answers first; None: none does, or not as the protocol has it.

    Args:
        instance: its name as in subjects.
    """
    try:
        return _decode_identity((await _ping(bus, instance, role, timeout_s)).data)
    except (NoResponders, NoAnswer, *UNDECODABLE):
        return None


async def _ping(bus: Bus, instance: str, role: str, timeout_s: float) -> Msg:
    return await bus.request(f"{subjects.SERVICES}.PING.{instance}", b"", timeout_s=timeout_s, answered_by=role)


async def is_served(bus: Bus, name: str, kind: str, *, timeout_s: float = 0.5) -> bool:
    """Return whether a process serves an instance, also if it is too busy to answer."""
    try:
        await _ping(bus, subjects.instance(name), ROLE_OF[kind], timeout_s)
    except NoResponders:
        return False
    except NoAnswer:
        pass
    return True


async def is_running(bus: Bus, name: str, kind: str, *, patience_s: float = 5.0) -> bool:
    """Return whether some process serves an instance of this name; one that is being started again is waited for.

    Raises:
        BusError: this process does not understand it.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + patience_s
    while True:
        found = await first_to_answer(bus, subjects.instance(name), ROLE_OF[kind], timeout_s=2.0)
        if found is not None:
            _check_version(found)
            return found.metadata.get("kind") == kind
        if loop.time() > give_up:
            return False
        await asyncio.sleep(0.25)


class UnservedAgents:
    """Agents that no process serves. One that is started again is away for a moment, and a busy one answers late."""

    def __init__(self, bus: Bus, after_s: float) -> None:
        """Prepare to look.

        Args:
            after_s: seconds without a process after which an agent counts as unserved.
        """
        self._bus = bus
        self._after_s = after_s
        self._since: dict[str, float] = {}

    async def among(self, agents: Collection[str]) -> list[str]:
        """Return which of some agents are unserved, by their names in order."""
        now = time.monotonic()
        gone = [agent for agent in agents if self._bus.is_stable and not await is_served(self._bus, agent, "agents")]
        self._since = {agent: self._since.get(agent, now) for agent in gone}
        return sorted(agent for agent, since in self._since.items() if now - since >= self._after_s)


def not_running(name: str, kind: str) -> str:
    """Return the sentence about an instance that no process serves.

    Args:
        kind: agent or model.
    """
    return f"no {kind} named {name!r} is running; `gymq status` lists those that are"
