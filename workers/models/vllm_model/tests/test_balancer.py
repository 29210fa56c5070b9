"""Which engine a request goes to, in simulated time, with engines that are slow, gone or shared by several workers."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest
from gymq.workers.models.vllm_model.balancer import (
    FIRST_ANSWERS,
    FIRST_PAUSE_S,
    FIRST_WINDOW,
    FORGET_S,
    LONGEST_PAUSE_S,
    MAX_SESSIONS,
    Balancer,
    Sent,
)
from gymq.workers.models.vllm_model.engine_metrics import EngineReport

REPORT_EVERY_S = 0.5


@dataclass
class SimulatedEngine:
    """Works on `slots` requests at a time, each for `seconds`; the others wait in the order in which they came."""

    slots: int
    seconds: float
    running: int = 0
    waiting: deque[Call] = field(default_factory=deque)

    @property
    def rate(self) -> float:
        return self.slots / self.seconds

    def report(self) -> EngineReport:
        return EngineReport(self.running, len(self.waiting))


@dataclass
class Call:
    session: str
    left: int  # calls of the session after this one
    worker: int
    sent: Sent | None = None


class Simulation:
    """Workers that ask the same engines, each with a balancer of its own. Sessions make one call after another."""

    def __init__(self, engines: dict[str, SimulatedEngine], num_workers: int = 1, *, reports: bool = True) -> None:
        self.engines = engines
        self.balancers = [Balancer(engines) for _ in range(num_workers)]
        for balancer in self.balancers:
            balancer.num_replicas = num_workers
        self.now = 0.0
        self.went: dict[str, list[str]] = {}  # the engines of each session, one after the other
        self._reports = reports
        self._held: list[deque[Call]] = [deque() for _ in self.balancers]
        self._events: list[tuple[float, int, str, Call | None]] = []
        self._numbers = itertools.count()

    def run(self, num_sessions: int, num_calls: int) -> float:
        """Return the seconds until all calls of all sessions, which all begin at once, are answered."""
        for number in range(num_sessions):
            worker = number % len(self.balancers)
            self._ask(Call(f"run/{number}/0", num_calls - 1, worker))
        for balancer in self.balancers:
            for name in self.engines:
                if not self._reports:
                    balancer.reported(name, None)
        self._at(REPORT_EVERY_S, "", None)
        left = num_sessions * num_calls
        while left:
            self.now, _, name, call = heapq.heappop(self._events)
            if call is None:
                self._report()
                continue
            left -= 1
            self._answer(name, call)
        return self.now

    def moved(self) -> int:
        """Return the calls whose session was at another engine before."""
        return sum(one != other for went in self.went.values() for one, other in itertools.pairwise(went))

    def _at(self, when: float, name: str, call: Call | None) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), name, call))

    def _report(self) -> None:
        self._at(self.now + REPORT_EVERY_S, "", None)
        for worker, balancer in enumerate(self.balancers):
            for name, engine in self.engines.items():
                balancer.reported(name, engine.report() if self._reports else None)
            self._let_through(worker)

    def _ask(self, call: Call) -> None:
        name = self.balancers[call.worker].choose(call.session, self.now)
        if name is None:
            self._held[call.worker].append(call)
        else:
            self._send(name, call)

    def _send(self, name: str, call: Call) -> None:
        call.sent = self.balancers[call.worker].sent(call.session, name, self.now)
        self.went.setdefault(call.session, []).append(name)
        self.engines[name].waiting.append(call)
        self._begin(name)

    def _begin(self, name: str) -> None:
        engine = self.engines[name]
        while engine.waiting and engine.running < engine.slots:
            engine.running += 1
            self._at(self.now + engine.seconds, name, engine.waiting.popleft())

    def _answer(self, name: str, call: Call) -> None:
        self.engines[name].running -= 1
        self._begin(name)
        assert call.sent is not None
        self.balancers[call.worker].ended(call.sent, self.now)
        self.balancers[call.worker].answered(call.sent, self.now)
        if call.left:
            self._ask(Call(call.session, call.left - 1, call.worker))
        self._let_through(call.worker)

    def _let_through(self, worker: int) -> None:
        held = self._held[worker]
        while held and (name := self.balancers[worker].choose(held[0].session, self.now)) is not None:
            self._send(name, held.popleft())


FAST_AND_SLOW = {"one request at a time": (1, 1 / 80, 1 / 20), "eight": (8, 0.1, 0.4), "64 of 8 s": (64, 8.0, 32.0)}


@pytest.mark.parametrize("kind", FAST_AND_SLOW)
@pytest.mark.parametrize("num_workers", [1, 4])
@pytest.mark.parametrize("num_calls", [1, 5, 10])
def test_of_two_engines_the_four_times_faster_one_does_four_fifths(kind: str, num_workers: int, num_calls: int) -> None:
    slots, fast_s, slow_s = FAST_AND_SLOW[kind]
    engines = {"slow": SimulatedEngine(slots, slow_s), "fast": SimulatedEngine(slots, fast_s)}
    simulation = Simulation(engines, num_workers)
    num_sessions = max(2000, 200 * slots) // num_calls
    took = simulation.run(num_sessions, num_calls)
    assert took <= 1.1 * num_sessions * num_calls / sum(engine.rate for engine in engines.values())
    assert simulation.moved() <= 0.03 * num_sessions * num_calls


def test_equal_engines_get_equally_many_sessions_and_keep_them() -> None:
    simulation = Simulation({name: SimulatedEngine(8, 0.5) for name in "abc"}, num_workers=2)
    simulation.run(300, 5)
    assert simulation.moved() == 0
    first = Counter(went[0] for went in simulation.went.values())
    assert max(first.values()) - min(first.values()) <= 10


def test_an_engine_with_more_slots_gets_more() -> None:
    engines = {"small": SimulatedEngine(8, 1.0), "large": SimulatedEngine(64, 1.0)}
    simulation = Simulation(engines)
    took = simulation.run(720, 5)
    assert took <= 1.1 * 720 * 5 / 72


def test_without_reports_the_faster_engine_still_gets_more() -> None:
    engines = {"slow": SimulatedEngine(8, 0.4), "fast": SimulatedEngine(8, 0.1)}
    simulation = Simulation(engines, reports=False)
    took = simulation.run(32, 50)
    assert took <= 1.25 * 32 * 50 / 100
    assert simulation.moved() <= 0.03 * 32 * 50


def test_sessions_leave_an_engine_that_becomes_slow_and_stay_where_they_went() -> None:
    engines = {name: SimulatedEngine(8, 0.1) for name in "ab"}
    simulation = Simulation(engines)
    engines["a"].seconds = 4.0  # of each call that begins from now on
    simulation.run(8, 60)
    assert simulation.moved() == 4
    assert {went[-1] for went in simulation.went.values()} == {"b"}


def test_an_engine_that_stops_answering_gets_no_more_sessions() -> None:
    balancer = Balancer(["hangs", "works"])
    for number in range(8):
        balancer.sent(f"run/{number}/0", "hangs", 0.0)
    for number in range(100):
        now = 1.0 * number
        sent = balancer.sent(f"run/{number}/1", "works", now)
        balancer.ended(sent, now + 1.0)
        balancer.answered(sent, now + 1.0)
    assert {balancer.choose(f"run/{number}/2", 100.0) for number in range(20)} == {"works"}
    assert balancer.choose("run/0/0", 100.0) == "works"


def test_a_pause_says_nothing_of_the_speed_and_size_of_an_engine() -> None:
    def after(pause_s: float) -> tuple[float | None, int | None]:
        balancer = Balancer(["a"])
        for number in range(2 * FIRST_ANSWERS):
            now = 1.0 * number
            sent = balancer.sent(f"run/{number}/0", "a", now)
            if number == FIRST_ANSWERS and pause_s:
                for _ in range(2):  # what runs may end, and all else waits
                    balancer.reported("a", EngineReport(1, 20, is_paused=True))
                now += pause_s
                balancer.reported("a", EngineReport(1, 0))
            balancer.ended(sent, now + 0.5)
            balancer.answered(sent, now + 0.5)
        return balancer._engines["a"].seconds, balancer._engines["a"].slots

    assert after(60.0) == after(0.0) == (0.5, None)


def test_no_session_begins_in_an_engine_that_has_more_than_it_works_on() -> None:
    balancer = Balancer(["a"])
    for number in range(FIRST_WINDOW):
        assert balancer.choose(f"run/{number}/0", 0.0) == "a"
        balancer.sent(f"run/{number}/0", "a", 0.0)
    assert balancer.choose("run/x/0", 0.0) is None
    assert balancer.choose("run/0/0", 0.0) == "a"  # it has begun
    balancer.reported("a", EngineReport(FIRST_WINDOW, 0))
    assert balancer.choose("run/x/0", 0.0) == "a"
    for _ in range(2):
        balancer.reported("a", EngineReport(4, FIRST_WINDOW - 4))
    assert balancer.choose("run/x/0", 0.0) is None
    balancer.reported("a", None)  # it says nothing any more
    assert balancer.choose("run/x/0", 0.0) == "a"


def test_a_queue_that_is_about_to_begin_makes_no_engine_full() -> None:
    balancer = Balancer(["a"])
    balancer.reported("a", EngineReport(1, FIRST_WINDOW - 2))
    assert balancer.choose("run/x/0", 0.0) == "a"


def test_what_other_workers_sent_since_a_report_is_taken_to_be_as_much_as_ours() -> None:
    balancer = Balancer(["a"])
    balancer.num_replicas = 4
    balancer.reported("a", EngineReport(8, 0))
    for _ in range(6):
        assert balancer.choose("run/x/0", 0.0) == "a"
        balancer.sent("", "a", 0.0)
    assert balancer.choose("run/x/0", 0.0) is None  # 8 and 4 times 6 are 32


def test_a_worker_keeps_to_its_part_of_the_limit() -> None:
    balancer = Balancer(["a"])
    balancer.limit = 1
    balancer.sent("", "a", 0.0)
    assert balancer.choose("run/x/0", 0.0) is None


def test_an_engine_that_was_asked_nothing_for_long_is_tried_again() -> None:
    balancer = Balancer(["slow", "fast"])
    for name, seconds in [("slow", 10.0), ("fast", 1.0)] * FIRST_ANSWERS:
        sent = balancer.sent("", name, 0.0)
        balancer.ended(sent, seconds)
        balancer.answered(sent, seconds)
    assert balancer.choose("", 11.0) == "fast"
    balancer.sent("", "fast", 11.0)
    assert balancer.choose("", 11.0) == "fast"
    assert balancer.choose("", 11.0 + FORGET_S) == "slow"


def test_few_answers_make_no_engine_slow() -> None:
    balancer = Balancer(["home", "other"])
    for name, seconds in [("home", 10.0), ("other", 1.0)] * (FIRST_ANSWERS - 1):
        sent = balancer.sent("run/0/0" if name == "home" else "", name, 0.0)
        balancer.ended(sent, seconds)
        balancer.answered(sent, seconds)
    assert balancer.choose("run/0/0", 10.0) == "home"


def test_the_sessions_of_an_ejected_engine_go_to_another_and_stay_there() -> None:
    balancer = Balancer(["a", "b"])
    balancer.sent("run/0/0", "a", 0.0)
    balancer.eject("a", 1.0, since=0.5)
    assert not balancer.is_at_home("run/0/0", 1.0)
    assert balancer.choose("run/0/0", 1.0) == "b"
    balancer.sent("run/0/0", "b", 1.0)
    assert balancer.restore("a")
    assert not balancer.restore("a")
    assert balancer.choose("run/0/0", 2.0) == "b"


def test_one_request_finds_out_whether_an_ejected_engine_is_back() -> None:
    balancer = Balancer(["a", "b"])
    for _ in range(3):
        balancer.sent("", "b", 0.0)
    balancer.eject("a", 0.0, since=0.0)
    assert balancer.choose("", FIRST_PAUSE_S - 0.1) == "b"
    assert balancer.choose("", FIRST_PAUSE_S) == "a"
    balancer.sent("", "a", FIRST_PAUSE_S)
    assert balancer.choose("", FIRST_PAUSE_S) == "b"


def test_pauses_double_up_to_a_limit_and_begin_again_after_a_return() -> None:
    balancer = Balancer(["a", "b"])
    now, pauses = 0.0, []
    for _ in range(6):
        balancer.eject("a", now, since=now)
        balancer.eject("a", now, since=now - 0.1)  # was on its way before
        pause = next(seconds for seconds in range(1, 1000) if balancer.has_other("b", now + seconds, ()))
        pauses.append(pause)
        now += pause
    assert pauses == [FIRST_PAUSE_S, 10, 20, 40, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    balancer.restore("a")
    balancer.eject("a", now, since=now, pause_s=7.0)
    assert not balancer.has_other("b", now + 6.9, ())
    assert balancer.has_other("b", now + 7.0, ())


def test_an_engine_is_not_chosen_twice_for_a_request() -> None:
    balancer = Balancer("abc")
    chosen = [balancer.choose("s", 0.0, tried) for tried in ({"a"}, {"a", "b"}, {"a", "b", "c"})]
    assert chosen == ["b", "c", None]


def test_if_all_are_down_one_is_tried_all_the_same() -> None:
    balancer = Balancer(["a"])
    balancer.eject("a", 0.0, since=0.0)
    assert balancer.choose("s", 1.0) == "a"


def test_engines_come_and_go_and_what_is_known_of_the_others_is_kept() -> None:
    balancer = Balancer(["a", "b"])
    kept, gone = balancer.sent("run/0/0", "a", 0.0), balancer.sent("run/1/0", "b", 0.0)
    balancer.set_engines(["a", "c"])
    assert balancer.choose("run/0/0", 1.0) == "a"
    assert balancer.choose("run/1/0", 1.0) == "c"
    balancer.ended(gone, 1.0)
    balancer.reported("b", EngineReport(0, 0))
    balancer.eject("b", 1.0, since=1.0)
    assert balancer.in_flight == 1
    balancer.ended(kept, 1.0)
    assert balancer.in_flight == 0
    balancer.set_engines([])
    assert balancer.choose("run/0/0", 1.0) is None


def test_so_many_sessions_are_remembered_and_no_more() -> None:
    balancer = Balancer(["a"])
    for number in range(MAX_SESSIONS + 1):
        balancer.sent(f"run/{number}/0", "a", 0.0)
    assert not balancer.is_at_home("run/0/0", 0.0)
    assert balancer.is_at_home("run/1/0", 0.0)
