"""Which engine a request goes to, and when one that is down is asked again."""

from __future__ import annotations

import hashlib

import pytest
from gymq.workers.models.vllm_model.ring import FIRST_PAUSE_S, LONGEST_PAUSE_S, Ring

SESSIONS = [f"run/{task}/{rollout}" for task in range(50) for rollout in range(4)]


def test_a_session_goes_where_its_hash_says() -> None:
    for session in SESSIONS:
        number = int(hashlib.sha256(session.encode()).hexdigest()[:16], 16)
        assert [Ring(engines).choose(session, 0.0) for engines in (2, 7)] == [number % 2, number % 7]


def test_all_engines_get_sessions() -> None:
    assert {Ring(3).choose(session, 0.0) for session in SESSIONS} == {0, 1, 2}


def test_the_sessions_of_an_ejected_engine_go_to_the_next_and_the_others_stay() -> None:
    ring = Ring(3)
    ring.eject(1, 0.0)
    for session in SESSIONS:
        home = ring.home(session)
        assert ring.choose(session, 1.0) == (2 if home == 1 else home)


def at_home(ring: Ring, engine: int) -> str:
    return next(session for session in SESSIONS if ring.home(session) == engine)


def test_one_request_finds_out_whether_an_ejected_engine_is_back() -> None:
    ring = Ring(2)
    session = at_home(ring, 0)
    ring.eject(0, 0.0)
    assert ring.choose(session, FIRST_PAUSE_S - 0.1) == 1
    assert [ring.choose(session, FIRST_PAUSE_S) for _ in range(3)] == [0, 1, 1]
    assert ring.restore(0)
    assert ring.choose(session, FIRST_PAUSE_S) == 0
    assert not ring.restore(0)


def test_pauses_double_up_to_a_limit_and_begin_again_after_a_return() -> None:
    ring = Ring(2)
    session = at_home(ring, 0)
    now, pauses = 0.0, []
    for _ in range(6):
        ring.eject(0, now)
        pause = next(seconds for seconds in range(1, 1000) if ring.choose(session, now + seconds) == 0)
        pauses.append(pause)
        now += pause
    assert pauses == [FIRST_PAUSE_S, 10, 20, 40, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    ring.restore(0)
    ring.eject(0, now)
    assert ring.choose(session, now + FIRST_PAUSE_S) == 0


def test_an_engine_is_not_chosen_twice_for_a_request() -> None:
    ring = Ring(3)
    home = ring.home("s")
    assert ring.choose("s", 0.0, {home}) == (home + 1) % 3
    assert ring.choose("s", 0.0, {home, (home + 1) % 3}) == (home + 2) % 3


@pytest.mark.parametrize("num_engines", [1, 3])
def test_if_all_are_down_the_home_is_tried_all_the_same(num_engines: int) -> None:
    ring = Ring(num_engines)
    for engine in range(num_engines):
        ring.eject(engine, 0.0)
    assert ring.choose("s", 1.0) == ring.home("s")


def test_a_request_without_a_session_goes_where_the_load_is_least() -> None:
    ring = Ring(3)
    assert ring.choose("", 0.0, loads=[2, 0, 1]) == 1
    ring.eject(1, 0.0)
    assert ring.choose("", 1.0, loads=[2, 0, 1]) == 2
