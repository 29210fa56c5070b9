"""Queues share the workers by weight, however long their tasks take and however many wait."""

import heapq
import itertools
from collections import Counter
from collections.abc import Mapping

import pytest

from gymq.bus.queue.shares import Account, Shares

SLOTS = 14


class Simulated:
    """An agent with slots on a clock of its own."""

    def __init__(self, slots: int = SLOTS) -> None:
        self.now = 0.0
        self.started: Counter[str] = Counter()
        self.busy_s: dict[str, float] = {}
        self.order: list[str] = []
        self.accounts: dict[str, Account] = {}
        self.durations: dict[str, itertools.cycle[float]] = {}
        self._shares = Shares()
        self._running: list[tuple[float, int, str, float]] = []
        self._slots = slots
        self._count = itertools.count()

    def add(self, name: str, weight: float, *durations_s: float) -> None:
        self.accounts[name] = Account(weight)
        self.durations[name] = itertools.cycle(durations_s)

    def remove(self, name: str) -> None:
        """Its tasks in flight end; no more are there."""
        del self.durations[name]

    def run(self, num_tasks: int) -> None:
        """Start so many tasks, each as soon as a slot is free."""
        for _ in range(num_tasks):
            if len(self._running) == self._slots:
                self.now, _, name, started = heapq.heappop(self._running)
                self._shares.end(self.accounts[name], started, self.now)
                self.busy_s[name] = self.busy_s.get(name, 0.0) + self.now - started
            names = list(self.durations)
            name = names[self._shares.next([(self.accounts[each], 0) for each in names], self.now)]
            self._shares.start(self.accounts[name], self.now)
            heapq.heappush(self._running, (self.now + next(self.durations[name]), next(self._count), name, self.now))
            self.started[name] += 1
            self.order.append(name)


def assert_shares(counts: Mapping[str, float], weights: dict[str, float], *, within: float = 0.05) -> None:
    total, sum_of_weights = sum(counts.values()), sum(weights.values())
    for name, weight in weights.items():
        assert counts[name] / total == pytest.approx(weight / sum_of_weights, rel=within), counts


@pytest.mark.parametrize("slots", [1, 3, 14, 200])
def test_three_queues_share_four_two_one(slots: int) -> None:
    agent = Simulated(slots)
    weights = {"four": 4.0, "two": 2.0, "one": 1.0}
    for name, weight in weights.items():
        agent.add(name, weight, 0.9, 1.0, 1.1)
    agent.run(100 * max(slots, 7))
    agent.started.clear()
    agent.run(100 * max(slots, 7))
    assert_shares(agent.started, weights)


def test_workers_time_is_shared_not_the_number_of_tasks() -> None:
    agent = Simulated()
    agent.add("long", 1.0, 60.0)
    agent.add("short", 1.0, 1.0)
    agent.run(5000)
    assert_shares(agent.busy_s, {"long": 1.0, "short": 1.0})
    assert agent.started["short"] > 40 * agent.started["long"]


def test_time_in_which_a_queue_wanted_nothing_is_not_saved_up() -> None:
    agent = Simulated()
    agent.add("always", 1.0, 1.0)
    agent.add("late", 1.0, 1.0)
    durations = agent.durations.pop("late")
    agent.run(2000)
    agent.durations["late"] = durations
    agent.started.clear()
    agent.run(200)
    assert_shares(agent.started, {"always": 1.0, "late": 1.0}, within=0.2)


def test_a_queue_that_pauses_is_not_paid_back() -> None:
    agent = Simulated()
    agent.add("always", 1.0, 1.0)
    agent.add("paused", 1.0, 1.0)
    agent.run(200)
    durations = agent.durations.pop("paused")
    agent.run(2000)
    agent.accounts["paused"].is_idle = True
    agent.durations["paused"] = durations
    agent.started.clear()
    agent.run(200)
    assert_shares(agent.started, {"always": 1.0, "paused": 1.0}, within=0.2)


def test_a_weight_that_changes_counts_from_then_on() -> None:
    agent = Simulated()
    agent.add("a", 1.0, 1.0)
    agent.add("b", 1.0, 1.0)
    agent.run(2000)
    agent._shares.weigh(agent.accounts["a"], 4.0, agent.now)
    agent.run(2 * SLOTS)
    agent.started.clear()
    agent.run(1000)
    assert_shares(agent.started, {"a": 4.0, "b": 1.0})


def test_a_queue_that_gets_a_higher_weight_does_not_wait_for_what_it_used_with_the_lower_one() -> None:
    agent = Simulated()
    agent.add("a", 1.0, 1.0)
    agent.add("b", 1 / 64, 1.0)
    agent.run(2000)
    agent._shares.weigh(agent.accounts["b"], 64.0, agent.now)
    agent.started.clear()
    agent.run(SLOTS)
    assert agent.started["b"] >= SLOTS - 1


def test_a_queue_that_gets_a_higher_weight_goes_first_where_tasks_are_shorter_than_was_expected() -> None:
    agent = Simulated(slots=8)
    agent.add("a", 1.0, 0.1)
    agent.add("b", 1 / 64, 0.1)
    agent.run(30)
    agent._shares.weigh(agent.accounts["b"], 64.0, agent.now, [agent.accounts["a"]])
    agent.started.clear()
    agent.run(20)
    assert agent.started["b"] >= 19


def test_a_queue_of_many_does_not_keep_another_waiting() -> None:
    agent = Simulated()
    agent.add("many", 1.0, 1.0)
    agent.run(1000)
    agent.add("new", 1.0, 1.0)
    agent.run(1)
    assert agent.order[-1] == "new"
