"""When another try is made, and how long is waited for it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from gymq.workers.models.openai_model.retry import (
    BROKEN,
    CONNECT_TIMEOUT_S,
    OVERLOADED,
    UNREACHABLE,
    Policy,
    Tries,
    Trouble,
    policy_of,
    retry_after_s,
)

import gymq

NOW = datetime(2025, 6, 15, 12, 0, 0, tzinfo=UTC)


def waits(policy: Policy, retry_after_s: float = 0.0) -> list[float]:
    tries, found = Tries(), []
    while True:
        try:
            found.append(tries.wait_s(Trouble(policy, "no", retry_after_s=retry_after_s), time_left_s=1e9))
        except gymq.RolloutError:
            return found


@pytest.mark.parametrize("policy", [UNREACHABLE, OVERLOADED, BROKEN])
def test_tries_are_bounded_and_waits_double_up_to_a_limit_with_jitter(policy: Policy) -> None:
    found = waits(policy)
    assert len(found) == policy.tries - 1
    for number, wait_s in enumerate(found):
        full = min(policy.longest_wait_s, policy.first_wait_s * 2**number)
        assert full / 2 <= wait_s <= full
    assert waits(policy) != found


def test_a_dead_endpoint_is_reported_within_ten_seconds() -> None:
    longest_waits = [UNREACHABLE.first_wait_s * 2**number for number in range(UNREACHABLE.tries - 1)]
    assert UNREACHABLE.tries * CONNECT_TIMEOUT_S + sum(longest_waits) < 10.0


def test_the_endpoints_own_wish_is_respected() -> None:
    assert all(7.0 < wait_s < 7.0 + OVERLOADED.longest_wait_s for wait_s in waits(OVERLOADED, retry_after_s=7.0))


def test_classes_of_trouble_are_counted_apart() -> None:
    tries = Tries()
    for _ in range(BROKEN.tries - 1):
        tries.wait_s(Trouble(BROKEN, "broken"), 1e9)
        tries.wait_s(Trouble(OVERLOADED, "full"), 1e9)
    tries.wait_s(Trouble(OVERLOADED, "full"), 1e9)
    with pytest.raises(gymq.RolloutError, match="broken"):
        tries.wait_s(Trouble(BROKEN, "broken"), 1e9)


def test_nobody_waits_for_a_try_after_the_deadline() -> None:
    with pytest.raises(gymq.RolloutError, match="after the deadline") as caught:
        Tries().wait_s(Trouble(OVERLOADED, "full", retry_after_s=60.0), time_left_s=5.0)
    assert caught.value.retryable


@pytest.mark.parametrize("status", [429, 502, 503, 504, 520, 529])
def test_busy_statuses(status: int) -> None:
    assert policy_of(status) is OVERLOADED


@pytest.mark.parametrize("status", [408, 409, 425, 499, 500, 505, 507])
def test_broken_statuses(status: int) -> None:
    assert policy_of(status) is BROKEN


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422, 501])
def test_statuses_that_another_try_does_not_change(status: int) -> None:
    assert policy_of(status) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"Retry-After": "3"}, 3.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After-Ms": "250", "Retry-After": "3"}, 0.25),
        ({"Retry-After": "Sun, 15 Jun 2025 12:01:30 GMT"}, 90.0),
        ({"Retry-After": "Sun, 15 Jun 2025 11:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, 0.0),
        ({"Retry-After": "-5"}, 0.0),
        ({"Retry-After": "nan"}, 0.0),
        ({"Retry-After": "inf"}, 0.0),
        ({"Retry-After": ""}, 0.0),
        ({"Retry-After": "Sun, 15 Jun 2025 12:01:30 -0000"}, 0.0),
    ],
)
def test_what_the_endpoint_wishes_is_read(headers: dict[str, str], seconds: float) -> None:
    assert retry_after_s(headers, NOW) == pytest.approx(seconds)
