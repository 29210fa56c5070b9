"""Waiting calls are taken by the class and the share of their runs."""

from __future__ import annotations

from collections import Counter

import pytest

from gymq.authoring import Precedence
from gymq.fair_queue import AHEAD, FairQueue
from gymq.protocol.messages import Priority

Call = tuple[str, int]


def add(queue: FairQueue[Call], run: str, count: int, precedence: Precedence | None = None) -> None:
    for number in range(count):
        queue.add((run, number), f"{run}/{number}/0", precedence or Precedence())


def test_calls_of_one_run_are_taken_in_their_order() -> None:
    queue: FairQueue[Call] = FairQueue()
    add(queue, "a", 3)
    assert [queue.pop() for _ in range(3)] == [("a", 0), ("a", 1), ("a", 2)]
    assert (queue.num_waiting, queue.num_running) == (0, 3)


@pytest.mark.parametrize("tokens", [{"a": 100.0, "b": 100.0}, {"a": 10.0, "b": 1000.0}, {"a": 900.0, "b": 30.0}])
def test_shares_divide_what_calls_cost_however_long_they_are(tokens: dict[str, float]) -> None:
    """64 calls run at a time, and end in the order in which they began."""
    queue: FairQueue[Call] = FairQueue()
    add(queue, "a", 200_000, Precedence(share=3.0))
    add(queue, "b", 200_000, Precedence(share=1.0))
    used: Counter[str] = Counter()
    running = [queue.pop() for _ in range(64)]
    while sum(used.values()) < 1_000_000:
        call = running.pop(0)
        used[call[0]] += int(tokens[call[0]])
        queue.end(call, tokens[call[0]])
        running.append(queue.pop())
    assert used["a"] / used["b"] == pytest.approx(3.0, rel=0.1)


def test_urgent_calls_are_taken_first_and_starve_no_other() -> None:
    queue: FairQueue[Call] = FairQueue()
    add(queue, "background", 1000, Precedence(Priority.BACKGROUND))
    add(queue, "normal", 1000)
    add(queue, "urgent", 3 * AHEAD, Precedence(Priority.URGENT))
    taken = Counter(queue.pop()[0] for _ in range(AHEAD))
    assert taken == {"urgent": AHEAD}
    taken += Counter(queue.pop()[0] for _ in range(2 * AHEAD + 2))
    assert taken == {"urgent": 3 * AHEAD, "normal": 2}
    taken = Counter(queue.pop()[0] for _ in range(AHEAD))
    assert taken == {"normal": AHEAD - 1, "background": 1}


def test_a_run_that_comes_later_does_not_make_up_for_the_time_before() -> None:
    queue: FairQueue[Call] = FairQueue()
    add(queue, "early", 1000)
    for _ in range(500):
        queue.end(queue.pop(), 10.0)
    add(queue, "late", 1000)
    assert Counter(queue.pop()[0] for _ in range(100)) == {"early": 50, "late": 50}


def test_a_share_that_changes_counts_from_the_next_call() -> None:
    queue: FairQueue[Call] = FairQueue()
    add(queue, "a", 1000)
    add(queue, "b", 1000)
    queue.add(("a", -1), "a/0/1", Precedence(share=4.0))
    assert Counter(queue.pop()[0] for _ in range(500)) == {"a": 400, "b": 100}


def test_a_call_that_waits_no_more_costs_its_run_nothing() -> None:
    queue: FairQueue[Call] = FairQueue()
    add(queue, "a", 100)
    add(queue, "b", 100)
    for number in range(50):
        queue.end(("a", number))
    assert queue.num_waiting == 150
    taken = [queue.pop() for _ in range(100)]
    assert Counter(run for run, _ in taken) == {"a": 50, "b": 50}
    assert ("a", 50) in taken


def test_a_turn_in_vain_costs_nothing_and_the_call_has_the_next_one() -> None:
    queue: FairQueue[Call] = FairQueue()
    add(queue, "a", 100)
    add(queue, "b", 100)
    refused = queue.pop()
    for _ in range(50):
        queue.put_back(refused)
        assert queue.pop() == refused
    assert queue.num_running == 1
    taken = [refused, *(queue.pop() for _ in range(99))]
    assert Counter(run for run, _ in taken) == {"a": 50, "b": 50}


def test_calls_outside_of_rollouts_wait_as_those_of_one_run() -> None:
    queue: FairQueue[Call] = FairQueue()
    add(queue, "a", 100)
    for number in range(100):
        queue.add(("bridge", number), f"bridge-{number}", Precedence())
    assert Counter(queue.pop()[0] for _ in range(100)) == {"a": 50, "bridge": 50}


def test_nothing_is_kept_of_a_run_without_calls() -> None:
    queue: FairQueue[Call] = FairQueue()
    for number in range(1000):
        add(queue, f"r{number}", 1)
        queue.end(queue.pop(), 5.0)
    assert not any(of_class.runs for of_class in queue._classes.values())
    assert not queue._calls
