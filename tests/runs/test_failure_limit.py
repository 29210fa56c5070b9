"""When a collection stops because of its failures."""

import pytest

from gymq.protocol.messages import Failure, FailureClass, Stage
from gymq.render import counted
from gymq.runs.collection.failure_limit import SAME_FAILURES, FailureLimit, MaxFailures


def failure(failure_class: FailureClass = FailureClass.MODEL_FAILED, *, curable: bool = False) -> Failure:
    return Failure(
        run="r",
        task_index=0,
        rollout_index=0,
        agent="a",
        row=b"{}",
        failure_class=failure_class,
        stage=Stage.MODEL,
        message="no",
        curable=curable,
    )


def reasons(limit: FailureLimit, *failures: Failure) -> list[str]:
    return [limit.note_failure(one) for one in failures]


def test_a_run_whose_first_rollouts_fail_for_one_reason_is_stopped() -> None:
    *before, last = reasons(FailureLimit(None, 1000, is_new=True), *[failure()] * SAME_FAILURES)
    assert not any(before)
    assert last == "32 rollouts in a row failed with model_failed at model"


def test_another_reason_in_between_begins_the_count_again() -> None:
    limit = FailureLimit(None, 1000, is_new=True)
    others = [failure(FailureClass.AGENT_FAILED)]
    assert not any(reasons(limit, *[failure()] * (SAME_FAILURES - 1), *others, *[failure()] * (SAME_FAILURES - 1)))


def test_a_run_with_a_success_is_stopped_only_if_the_configuration_is_wrong() -> None:
    limit = FailureLimit(None, 1000, is_new=True)
    limit.note_success()
    assert not any(reasons(limit, *[failure()] * 100))
    assert any(reasons(limit, *[failure(curable=True)] * SAME_FAILURES))


def test_a_success_begins_the_count_again() -> None:
    limit = FailureLimit(None, 1000, is_new=False)
    assert not any(reasons(limit, *[failure(curable=True)] * (SAME_FAILURES - 1)))
    limit.note_success()
    assert not any(reasons(limit, *[failure(curable=True)] * (SAME_FAILURES - 1)))


def test_a_cancelled_rollout_is_no_failure_of_the_run() -> None:
    cancelled = [failure(FailureClass.CANCELLED)] * 100
    assert not any(reasons(FailureLimit(None, 1000, is_new=True), *cancelled))
    assert not any(reasons(FailureLimit(MaxFailures(0), 1000, is_new=True), *cancelled))


@pytest.mark.parametrize(
    ("text", "allowed"), [("0", 0), ("3", 3), ("100", 100), ("5%", 10), ("0.5%", 1), ("100%", 200)]
)
def test_a_given_limit_takes_the_place_of_the_rule(text: str, allowed: int) -> None:
    limit = FailureLimit(MaxFailures.parse(text), 200, is_new=True)
    assert not any(reasons(limit, *[failure()] * allowed))
    assert limit.note_failure(failure()) == f"{counted(allowed + 1, 'rollout')} failed, more than --max-failures {text}"


@pytest.mark.parametrize("text", ["", "-1", "many", "1.5", "101%", "nan%", "inf%", "%", "-1%"])
def test_nonsense_is_no_limit(text: str) -> None:
    with pytest.raises(ValueError, match="neither a number of rollouts nor a share"):
        MaxFailures.parse(text)
