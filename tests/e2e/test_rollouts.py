"""What becomes of a task: every way in which a rollout can go, seen from its stored outcome."""

import re

import pytest
import pytest_asyncio

from gymq.cluster.process_spec import ProcessSpec
from gymq.protocol.messages import Failure, FailureClass, Outcome, Stage, Unresolved, VerifiedRollout

from .running_cluster import RunningCluster, model, row

pytestmark = pytest.mark.asyncio(loop_scope="session")

# All at once, since most of the time is spent waiting; each test looks at one of them.
ASKED = {
    "plain": row("plain"),
    "wrong": row("wrong", script={"reward": 0.25}),
    "model fails twice": row("model fails twice", script={"model_fails": 2}),
    "model fails": row("model fails", script={"model_fails": 99}),
    "nonsense": row("nonsense", script={"model_nonsense": True}),
    "verifier fails once": row("verifier fails once", script={"verify_fails": 1}),
    "verifier fails": row("verifier fails", script={"verify_fails": 99}),
    "nan": row("nan", script={"reward": "nan"}),
    "large": row("large", script={"reply_bytes": 9_000_000}),
    "no params": {"responses_create_params": {"input": 7}},
    "large row": row("large row", padding="x" * 9_000_000),
}
LATE = {
    "model hangs": row("model hangs", script={"model_s": 60}),
    "verifier hangs": row("verifier hangs", script={"verify_s": 60}),
}
ODD = {what: row(what, script={"agent": what}) for what in ("raise", "leave", "none", "nan", "own_timeout", "sleep")}
DEADLY = {"die": row("die", script={"agent": "die"})}
ADDING = {"three turns": row("three turns", expected=3, script={"tools": ["add"] * 3})}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def outcomes(cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    marker = tmp_path_factory.mktemp("marker") / "died"
    adding = ADDING | {
        "killed": row("killed", expected=3, marker=str(marker), script={"tools": ["add", "add_and_die", "add"]})
    }
    groups = (
        ("asker", ASKED, 30.0),
        ("asker", LATE, 8.0),
        ("odd", ODD, 8.0),
        ("deadly", DEADLY, 30.0),
        ("adder", adding, 30.0),
    )
    runs = [f"rollouts-{number}" for number in range(len(groups))]
    for run, (agent, rows, timeout_s) in zip(runs, groups, strict=True):
        await cluster.submit(run, agent, rows.values(), timeout_s=timeout_s)
    found: dict[str, Outcome] = {}
    for run, (agent, rows, _) in zip(runs, groups, strict=True):
        stored = await cluster.outcomes(run, len(rows))
        found |= {f"{agent}: {name}": stored[task, 0] for task, name in enumerate(rows)}
    return found


def rollout(outcome: Outcome) -> VerifiedRollout:
    assert isinstance(outcome, VerifiedRollout), outcome
    return outcome


def failure(outcome: Outcome) -> Failure:
    assert isinstance(outcome, Failure), outcome
    return outcome


async def test_a_task_becomes_a_rollout_with_the_verifiers_reward(outcomes: dict[str, Outcome]) -> None:
    assert rollout(outcomes["asker: plain"]).reward == 1.0
    assert rollout(outcomes["asker: wrong"]).reward == 0.25


async def test_a_model_that_fails_is_asked_again(outcomes: dict[str, Outcome]) -> None:
    done = rollout(outcomes["asker: model fails twice"])
    assert done.reward == 1.0
    assert done.attempt == 2


async def test_a_model_that_always_fails_is_given_up_after_three_tries(
    cluster: RunningCluster, outcomes: dict[str, Outcome]
) -> None:
    failed = failure(outcomes["asker: model fails"])
    assert (failed.failure_class, failed.stage, failed.attempt) == (FailureClass.MODEL_FAILED, Stage.MODEL, 2)
    assert cluster.calls(failed.run)[f"{failed.task_index}/0"] == 3


async def test_a_reply_that_is_no_response_is_a_failure_of_the_model(outcomes: dict[str, Outcome]) -> None:
    assert failure(outcomes["asker: nonsense"]).failure_class is FailureClass.MODEL_FAILED


async def test_a_verifier_that_fails_is_asked_again_with_the_same_response(
    cluster: RunningCluster, outcomes: dict[str, Outcome]
) -> None:
    done = rollout(outcomes["asker: verifier fails once"])
    assert done.verdict["asked"] == 2
    assert cluster.calls(done.run)[f"{done.task_index}/0"] == 1


async def test_without_a_verdict_the_response_is_kept_and_there_is_no_reward(outcomes: dict[str, Outcome]) -> None:
    unresolved = outcomes["asker: verifier fails"]
    assert isinstance(unresolved, Unresolved)
    assert unresolved.failure_class is FailureClass.VERIFIER_FAILED
    assert "the verifier is out of order" in unresolved.message
    assert unresolved.response["output"][0]["content"][0]["text"] == "done"
    assert unresolved.retryable


async def test_a_reward_that_is_no_number_is_no_reward(outcomes: dict[str, Outcome]) -> None:
    assert isinstance(outcomes["asker: nan"], Unresolved)


async def test_a_response_larger_than_a_message_is_stored_whole(outcomes: dict[str, Outcome]) -> None:
    text = rollout(outcomes["asker: large"]).response["output"][0]["content"][0]["text"]
    assert len(text) == len("done") + 9_000_000


async def test_a_row_larger_than_a_message_is_rolled_out(outcomes: dict[str, Outcome]) -> None:
    assert len(rollout(outcomes["asker: large row"]).row) > 9_000_000


async def test_a_row_without_usable_params_fails_for_good_and_names_the_field(outcomes: dict[str, Outcome]) -> None:
    failed = failure(outcomes["asker: no params"])
    assert failed.failure_class is FailureClass.INVALID_TASK
    assert not failed.retryable
    assert "responses_create_params" in failed.message


async def test_a_rollout_ends_at_its_deadline(outcomes: dict[str, Outcome]) -> None:
    failed = failure(outcomes["asker: model hangs"])
    assert (failed.failure_class, failed.stage) == (FailureClass.DEADLINE_EXCEEDED, Stage.MODEL)


async def test_a_deadline_in_the_verifier_keeps_the_response(outcomes: dict[str, Outcome]) -> None:
    unresolved = outcomes["asker: verifier hangs"]
    assert isinstance(unresolved, Unresolved), unresolved
    assert unresolved.failure_class is FailureClass.DEADLINE_EXCEEDED


async def test_an_agent_that_sleeps_beyond_its_deadline_is_ended(outcomes: dict[str, Outcome]) -> None:
    failed = failure(outcomes["odd: sleep"])
    assert (failed.failure_class, failed.stage) == (FailureClass.DEADLINE_EXCEEDED, Stage.AGENT)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "KeyError: 'no such thing'"),
        ("leave", "SystemExit: 3"),
        ("none", "returned None, no Verdict"),
        ("nan", "no Verdict with a finite reward"),
        ("own_timeout", "TimeoutError"),
    ],
)
async def test_an_error_in_an_agents_own_code_is_a_failure_that_says_what_it_was(
    outcomes: dict[str, Outcome], how: str, said: str
) -> None:
    failed = failure(outcomes[f"odd: {how}"])
    assert (failed.failure_class, failed.stage) == (FailureClass.AGENT_FAILED, Stage.AGENT)
    assert said in failed.message
    if how == "raise":
        assert re.search(r"\n  \S+\.py:\d+ in run: raise KeyError", failed.message)
        assert "gymq/execution/attempts.py" not in failed.message


async def test_a_task_that_kills_its_agent_every_time_ends_as_a_failure(outcomes: dict[str, Outcome]) -> None:
    failed = failure(outcomes["deadly: die"])
    assert (failed.failure_class, failed.stage) == (FailureClass.REDELIVERED_TOO_OFTEN, Stage.QUEUE)


async def test_tools_change_the_state_of_the_rollouts_own_session(outcomes: dict[str, Outcome]) -> None:
    assert rollout(outcomes["adder: three turns"]).verdict["total"] == 3


async def test_a_rollout_whose_session_was_lost_starts_over(outcomes: dict[str, Outcome]) -> None:
    done = rollout(outcomes["adder: killed"])
    assert done.reward == 1.0
    assert done.verdict["total"] == 3
    assert done.attempt == 1


async def test_every_settled_task_has_left_the_queue(cluster: RunningCluster, outcomes: dict[str, Outcome]) -> None:
    assert {await cluster.waiting_tasks(outcome.run) for outcome in outcomes.values()} == {0}


async def test_what_can_be_read_by_nobody_is_a_dead_letter_and_holds_nothing_up(
    cluster: RunningCluster, run: str
) -> None:
    subject = f"gym.tasks.{run}.asker"
    for body in (b"", b"\xff\xfe", b"{}", b"[1, 2]", b'{"type": "task.v1"}', b"\x28\xb5\x2f\xfd nothing"):
        await cluster.js.store(subject, body)
    await cluster.submit(run, "asker", [row()])
    assert len(await cluster.outcomes(run, 1)) == 1
    letters = [letter for letter in await cluster.dead_letters() if letter.subject == subject]
    assert len(letters) == 6
    assert all(letter.reason.startswith("not a task: ") for letter in letters)


async def test_a_task_on_the_wrong_subject_is_a_dead_letter(cluster: RunningCluster, run: str) -> None:
    body = b'{"type": "task.v1", "run": "other", "task_index": 0, "rollout_index": 0, "agent": "asker",'
    body += b' "row": {"responses_create_params": {"input": "x"}}, "timeout_s": 9}'
    await cluster.js.store(f"gym.tasks.{run}.asker", body)
    await cluster.submit(run, "asker", [row()])
    await cluster.outcomes(run, 1)
    letters = [letter for letter in await cluster.dead_letters() if letter.subject == f"gym.tasks.{run}.asker"]
    assert len(letters) == 1
    assert "do not belong on" in letters[0].reason


async def test_a_task_waits_for_a_model_that_comes_up_later(cluster: RunningCluster, run: str) -> None:
    await cluster.submit(run, "waiter", [row()])
    late = await cluster.start(
        "late", ProcessSpec(cluster.url, "model", [model("late_model", cluster.folder)], drain_s=2.0)
    )
    try:
        outcome = (await cluster.outcomes(run, 1))[0, 0]
    finally:
        await late.stop()
    assert rollout(outcome).reward == 1.0
