"""Which engine a request goes to: the one of its session, else the one where it waits least.

Peak EWMA, as in Finagle and Linkerd, with what engines report in place of what one client sees: an engine's cost is
the number of its requests times the seconds that one keeps a slot, by the number of its slots. While its queue grows
that is how long a request takes. Requests without a session or with a new one wait here while every engine has more
than it works on, so that the engine that is done first gets the next, however fast it is. A session stays with its
engine, which holds its prefix, and leaves only one that is slow or full while another is not. None begins in an engine
that is paused.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from gymq.workers.models.vllm_model.engine_metrics import EngineReport

FIRST_PAUSE_S = 5.0  # in which an engine that does not answer is left alone; it doubles
LONGEST_PAUSE_S = 60.0
FIRST_WINDOW = 32  # requests to an engine, until it has said how many it works on at a time
BACKLOG_S = 0.5  # of work that waits in an engine, so that it need not wait for us
SAME = 1.1  # times the least cost; of the engines up to that, the one that was asked longest ago is asked
LEAVE = 2.0  # times the cost of another engine, or its seconds, that a session bears
HUNG = 4.0  # times as old as requests get are those of an engine that does not answer
FIRST_ANSWERS = 8  # from which on the speed of an engine is known
FOLLOW = 1 / 16  # of the difference: how fast the mean follows new answers
FORGET_S = 30.0  # after which the speed of an engine that was asked nothing is unknown again
MAX_SESSIONS = 65_536  # whose engine is remembered


@dataclass(frozen=True)
class Sent:
    """A request on its way to an engine."""

    engine: str
    at: float
    num: int  # requests of the engine, this one included


@dataclass(frozen=True)
class _Expected:
    """What one more request would meet in an engine."""

    cost: float
    seconds: float  # that it would keep a slot


@dataclass
class _Ejected:
    at: float
    retry_at: float
    pause_s: float
    is_gone: bool  # nothing answers there


@dataclass
class _Engine:
    """What is known of an engine.

    Attributes:
        num_reported: requests there, by its last report; None: it reports nothing.
        num_then: requests of ours at that time.
        slots: requests that it works on at a time, as seen while others waited.
        seconds: that a request keeps a slot, on average.
        window: requests at which no session is begun there.
        paused_at: when the last request was sent of which a part of the wait may be a pause.
    """

    name: str
    in_flight: int = 0  # requests of ours
    sum_at: float = 0.0  # of the times at which they were sent
    sent_at: float = -math.inf  # the last of them
    idle_since: float = 0.0
    num_reported: int | None = None
    num_then: int = 0
    has_waiting: bool = False
    is_paused: bool = False
    paused_at: float = -math.inf
    slots: int | None = None
    seconds: float | None = None
    num_answers: int = 0
    window: float = FIRST_WINDOW
    ejected: _Ejected | None = field(default=None)

    def num(self, num_replicas: int) -> int:
        """Return the requests there: those reported, and those that all replicas sent since, as many each as we did."""
        if self.num_reported is None:
            return num_replicas * self.in_flight
        return max(self.in_flight, self.num_reported + num_replicas * (self.in_flight - self.num_then))

    def known_s(self, now: float) -> float | None:
        """Return the seconds that a request keeps a slot, if that is known."""
        is_old = not self.in_flight and now - self.idle_since > FORGET_S
        return None if is_old or self.num_answers < FIRST_ANSWERS else self.seconds

    def service_s(self, latency_s: float, num: int) -> float:
        """Return the part of a latency that is not waiting, if there were `num` requests."""
        return latency_s if self.slots is None else latency_s * min(1.0, self.slots / max(1, num))


class Balancer:
    """Chooses among the engines of one worker. Times are seconds on any clock that never goes back.

    Attributes:
        num_replicas: workers that ask the same engines.
        limit: requests that this one may have in one engine at a time.
    """

    def __init__(self, engines: Iterable[str] = ()) -> None:
        self.num_replicas = 1
        self.limit = math.inf
        self._engines: dict[str, _Engine] = {}
        self._homes: OrderedDict[str, str] = OrderedDict()  # the engines of sessions
        self.set_engines(engines)

    def set_engines(self, engines: Iterable[str]) -> None:
        """Choose among these from now on; what is known of those that stay is kept."""
        self._engines = {name: self._engines.get(name) or _Engine(name) for name in engines}

    def choose(self, session: str, now: float, tried: Container[str] = ()) -> str | None:
        """Return the engine for a request; None if it should wait until one has room.

        Args:
            session: empty if the request belongs to none.
            tried: engines that this request has been to.
        """
        engines = self._usable(now, tried)
        expected = self._expected(engines, now)
        with_room = [engine for engine in engines if self._has_room(engine)]
        least = min((expected[engine.name].cost for engine in with_room), default=0.0)
        cheap = (engine for engine in with_room if expected[engine.name].cost <= SAME * least)
        best = min(cheap, key=lambda engine: engine.sent_at, default=None)
        home = self._engines.get(self._homes.get(session, ""))
        if home is None or home not in engines:
            return None if best is None else best.name
        if best is None or expected[home.name].cost <= LEAVE * expected[best.name].cost:
            return home.name
        is_slow = expected[home.name].seconds > LEAVE * expected[best.name].seconds
        is_full = home.slots is not None and home.num(self.num_replicas) > home.slots
        return best.name if is_slow or is_full else home.name

    @property
    def in_flight(self) -> int:
        """Return the requests of this worker that are in the engines."""
        return sum(engine.in_flight for engine in self._engines.values())

    def is_at_home(self, session: str, now: float, tried: Container[str] = ()) -> bool:
        """Return whether a session has an engine that takes its request."""
        home = self._engines.get(self._homes.get(session, ""))
        return home is not None and home in self._usable(now, tried)

    def has_other(self, engine: str, now: float, tried: Container[str]) -> bool:
        """Return whether a request that is at an engine could go to another one that is up."""
        return any(other.name != engine and _is_up(other, now) for other in self._usable(now, tried))

    def sent(self, session: str, engine: str, now: float) -> Sent:
        """Count a request, and remember the engine of its session."""
        to = self._engines[engine]
        to.sent_at = now
        to.in_flight += 1
        to.sum_at += now
        if to.ejected is not None:
            to.ejected.retry_at = now + to.ejected.pause_s  # others do not wait for the outcome
        if session:
            self._homes[session] = engine
            self._homes.move_to_end(session)
            if len(self._homes) > MAX_SESSIONS:
                self._homes.popitem(last=False)
        return Sent(engine, now, to.num(self.num_replicas))

    def ended(self, sent: Sent, now: float) -> None:
        """Count a request no longer."""
        engine = self._engines.get(sent.engine)
        if engine is not None and engine.in_flight:
            engine.in_flight -= 1
            engine.sum_at -= sent.at
            engine.idle_since = now

    def answered(self, sent: Sent, now: float) -> None:
        """Learn from an answer how fast its engine is."""
        engine = self._engines.get(sent.engine)
        if engine is not None and sent.at > engine.paused_at:
            seconds = engine.service_s(now - sent.at, sent.num)
            engine.num_answers += 1
            mean = seconds if engine.seconds is None else engine.seconds
            engine.seconds = mean + max(FOLLOW, 1 / engine.num_answers) * (seconds - mean)

    def reported(self, engine: str, report: EngineReport | None) -> None:
        """Follow what an engine reports; None: it has nothing of the kind."""
        of = self._engines.get(engine)
        if of is None:
            return
        if report is None:
            of.num_reported, of.slots, of.window, of.is_paused = None, None, math.inf, False
            return
        of.num_reported, of.num_then = report.running + report.waiting, of.in_flight
        of.is_paused = report.is_paused
        if of.is_paused:
            of.has_waiting, of.paused_at = False, of.sent_at  # what waits says nothing of the engine's size
            return
        had_waiting, of.has_waiting = of.has_waiting, report.waiting > 0
        if not report.waiting:
            of.window = max(of.window if of.window < math.inf else 0, 2 * report.running, FIRST_WINDOW)
            if of.slots is not None:
                of.slots = max(of.slots, report.running)
        elif had_waiting and report.running:  # those that wait are not just about to begin
            of.slots = report.running
            of.window = report.running + max(1.0, BACKLOG_S * report.running / (of.seconds or BACKLOG_S))

    def eject(self, engine: str, now: float, *, since: float, pause_s: float = 0.0, is_gone: bool = True) -> None:
        """Leave an engine alone for a while: for as long as it asks for, or twice as long as the last time.

        Args:
            since: when what failed was sent; what was on its way when the engine was ejected says nothing new.
            pause_s: that the engine asks for.
            is_gone: whether nothing answers there.
        """
        of = self._engines.get(engine)
        if of is None or (of.ejected is not None and since <= of.ejected.at):
            return
        doubled = FIRST_PAUSE_S if of.ejected is None else 2.0 * of.ejected.pause_s
        pause_s = min(max(pause_s, doubled), LONGEST_PAUSE_S)
        of.ejected = _Ejected(now, now + pause_s, pause_s, is_gone)

    def is_gone(self, engine: str) -> bool:
        """Return whether an engine is left alone because nothing answers there."""
        of = self._engines.get(engine)
        return of is not None and of.ejected is not None and of.ejected.is_gone

    def restore(self, engine: str) -> bool:
        """Note that an engine answers; return whether it had been ejected."""
        of = self._engines.get(engine)
        if of is None or of.ejected is None:
            return False
        of.ejected = None
        return True

    def _usable(self, now: float, tried: Container[str]) -> list[_Engine]:
        """Return the engines that are up; if none is, all: better one more try than none."""
        left = [engine for engine in self._engines.values() if engine.name not in tried]
        return [engine for engine in left if _is_up(engine, now)] or left

    def _has_room(self, engine: _Engine) -> bool:
        has_room = engine.num(self.num_replicas) < engine.window and engine.in_flight < self.limit
        return has_room and not engine.is_paused

    def _expected(self, engines: Iterable[_Engine], now: float) -> dict[str, _Expected]:
        """Return what a request would meet in each engine; what is not known of one is as in the others."""
        known = [seconds for engine in self._engines.values() if (seconds := engine.known_s(now)) is not None]
        mean = sum(known) / len(known) if known else 1.0
        most_slots = max((engine.slots or 1 for engine in self._engines.values()), default=1)
        expected = {}
        for engine in engines:
            num = engine.num(self.num_replicas)
            seconds = engine.known_s(now) or mean
            if engine.in_flight:
                age = now - engine.sum_at / engine.in_flight  # of those that have no answer yet, on average
                seconds = max(seconds, engine.service_s(age, num) / HUNG)
            expected[engine.name] = _Expected((num + 1) * seconds / (engine.slots or most_slots), seconds)
        return expected


def _is_up(engine: _Engine, now: float) -> bool:
    return engine.ejected is None or now >= engine.ejected.retry_at
