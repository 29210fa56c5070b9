"""The table of retries: an entry for every class of failure, and every retry ends."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.failures import INTERRUPTED, RETRIES, RETRYABLE, Retries, Retry, RolloutError
from gymq.protocol.messages import FailureClass

NEVER = (
    FailureClass.INVALID_TASK,
    FailureClass.BAD_REQUEST,
    FailureClass.NOT_STORABLE,
    FailureClass.AGENT_FAILED,
    FailureClass.DEADLINE_EXCEEDED,
    FailureClass.CANCELLED,
)
EVERY = [
    retry
    for retries in RETRIES.values()
    for retry in (retries.call, retries.effect, retries.verdict, retries.rollout)
    if retry is not None
] + [INTERRUPTED]

seconds = st.floats(min_value=0.0, max_value=1e6)


def test_every_class_of_failure_has_its_entry() -> None:
    assert set(RETRIES) == set(FailureClass)


@pytest.mark.parametrize("failure_class", FailureClass)
def test_only_what_another_try_may_cure_is_tried_again(failure_class: FailureClass) -> None:
    assert (RETRIES[failure_class] == Retries()) == (failure_class in NEVER)
    assert (failure_class in RETRYABLE) == (failure_class not in NEVER)
    assert RolloutError(failure_class, "no").retryable == (failure_class not in NEVER)


def test_a_call_is_repeated_only_after_a_failure_that_its_sender_finds() -> None:
    found = {failure_class for failure_class, retries in RETRIES.items() if retries.call is not None}
    assert found == {FailureClass.NO_WORKER, FailureClass.WORKER_LOST, FailureClass.SATURATED}


@pytest.mark.parametrize("retry", EVERY)
def test_every_retry_has_a_last_try(retry: Retry) -> None:
    assert retry.pause_s(retry.tries - 1, left_s=math.inf) is not None
    assert retry.pause_s(retry.tries, left_s=math.inf) is None


@pytest.mark.parametrize("retry", EVERY)
@given(data=st.data())
def test_no_try_begins_after_the_deadline_or_the_budget(retry: Retry, data: st.DataObject) -> None:
    failed = data.draw(st.integers(min_value=1, max_value=retry.tries))
    left_s, spent_s = data.draw(seconds), data.draw(seconds)
    pause_s = retry.pause_s(failed, left_s=left_s, spent_s=spent_s)
    if pause_s is not None:
        assert 0 < pause_s < left_s
        assert spent_s + pause_s <= retry.budget_s
        assert pause_s <= retry.longest_pause_s


def test_pauses_grow_from_the_first_to_the_longest() -> None:
    retry = Retry(tries=10**9, first_pause_s=1.0, longest_pause_s=10.0, growth=3.0, jitter=0.0)
    pauses = [retry.pause_s(failed, left_s=math.inf) for failed in (1, 2, 3, 4, 10**8)]
    assert pauses == [1.0, 3.0, 9.0, 10.0, 10.0]


def test_those_who_failed_together_do_not_come_back_together() -> None:
    retry = Retry(tries=2, first_pause_s=8.0, longest_pause_s=8.0, jitter=0.25)
    pauses = [retry.pause_s(1, left_s=math.inf) or 0.0 for _ in range(1000)]
    assert len(set(pauses)) > 900
    assert 6.0 <= min(pauses) < 6.5
    assert 7.5 < max(pauses) <= 8.0


def test_what_is_called_hopeless_is_not_tried_again_whatever_its_class() -> None:
    assert RolloutError(FailureClass.MODEL_FAILED, "no", retryable=False).retries == Retries()


def test_what_is_called_curable_is_tried_again_as_a_whole_whatever_its_class() -> None:
    retries = RolloutError(FailureClass.AGENT_FAILED, "no", retryable=True).retries
    assert retries.rollout == RETRIES[FailureClass.MODEL_FAILED].rollout
    assert retries == Retries(rollout=retries.rollout)
