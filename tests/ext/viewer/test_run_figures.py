"""The list of runs, and the charts and failures of one: figures from rollouts that tests store."""

import time

import pytest

from gymq.bus.queue.client import QueueClient
from gymq.ext.viewer import run_states
from gymq.ext.viewer.over_time import Measured, by_version, over_time, spread
from gymq.ext.viewer.run_states import Queued, RunState, state_of
from gymq.ext.viewer.viewer import Viewer
from gymq.protocol.messages import FailureClass, Run, Stage, Task, Timing
from gymq.testing import reply

from .conftest import Web, failure, rollout


async def test_runs_are_sorted_by_a_field_with_those_without_it_last(web: Web, run: str) -> None:
    for number, reward in enumerate([0.5, 1.0, 0.0]):
        await web.announce(f"{run}-{number}", num_rollouts=1)
        await web.store(rollout(f"{run}-{number}", 0, reward=reward))
    await web.announce(f"{run}-none", num_rollouts=1)
    await web.profile()

    async def names(**query: str) -> list[str]:
        return [one["overview"]["run"].rpartition("-")[2] for one in (await web.get("runs", text=run, **query))["runs"]]

    assert await names(sort="reward", order="up") == ["2", "0", "1", "none"]
    assert await names(sort="reward") == ["1", "0", "2", "none"]
    assert await names(sort="run", order="up") == ["0", "1", "2", "none"]
    assert await names() == ["none", "2", "1", "0"]


async def test_a_run_of_which_there_is_only_a_record_is_not_listed(web: Web, run: str) -> None:
    await web.announce(f"{run}-empty")
    await web.announce(f"{run}-begun", num_rollouts=3)
    (listed,) = (await web.get("runs", text=run))["runs"]
    assert listed["overview"]["run"] == f"{run}-begun"


@pytest.mark.parametrize(
    ("stored", "queued", "cancelled", "age_s", "expected"),
    [
        (4, 0, False, 900, RunState.DONE),
        (2, 2, False, 900, RunState.RUNNING),
        (0, 4, False, 900, RunState.QUEUED),
        (2, 0, False, 900, RunState.INTERRUPTED),
        (2, 0, False, 0, RunState.RUNNING),
        (4, 0, True, 900, RunState.CANCELLED),
    ],
)
def test_what_a_run_is_doing(stored: int, queued: int, cancelled: bool, age_s: float, expected: RunState) -> None:
    record = Run(run="r", created_at=time.time() - age_s, num_rollouts=4)
    known = Queued({"r": queued} if queued else {}, frozenset({"r"} if cancelled else ()))
    assert state_of(record, stored, None, known) is expected


async def test_a_run_whose_cluster_has_ended_is_interrupted(
    web: Web, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_states, "QUIET_S", 0.0)
    await web.announce(run, num_rollouts=2)
    await web.store(rollout(run, 0))
    await QueueClient(web.world.bus).submit(
        Task(run=run, task_index=1, rollout_index=0, num_rollouts=1, agent="unserved", row=b"{}", timeout_s=60.0)
    )
    assert (await web.get(f"runs/{run}"))["state"] == "running"
    async with Viewer(web.world.bus, "127.0.0.1", has_workers=False) as stored:
        async with web.session.get(f"{stored.url}api/runs/{run}") as answer:
            assert (await answer.json())["state"] == "interrupted"
        async with web.session.get(f"{stored.url}api/runs", params={"text": run}) as answer:
            assert [one["state"] for one in (await answer.json())["runs"]] == ["interrupted"]


async def test_failures_are_grouped_by_class_and_message_with_their_workers(web: Web, run: str) -> None:
    await web.announce(run, num_rollouts=5)
    for task in range(3):
        await web.store(failure(run, task, message=f"row {task}: no GPU\nmore of {task}", worker=f"w{task % 2}"))
    await web.store(failure(run, 3, message="row 1: no GPU", failure_class=FailureClass.JUDGE_FAILED, worker="w1"))
    await web.store(rollout(run, 4))
    found = await web.get(f"runs/{run}/failing")
    assert (found["num_failed"], found["is_whole"]) == (4, True)
    first, second = found["groups"]
    assert (first["failure_class"], first["count"], first["stage"]) == ("model_failed", 3, "model")
    assert first["workers"] == [["w0", 2], ["w1", 1]]
    assert first["rollouts"] == [[0, 0], [1, 0], [2, 0]]
    assert (second["failure_class"], second["count"]) == ("judge_failed", 1)


async def test_charts_follow_a_run_over_time_and_by_policy_version(web: Web, run: str) -> None:
    cut = reply("half of it") | {"incomplete_details": {"reason": "max_output_tokens"}}
    timings = [Timing(Stage.MODEL, 0.0, 1.0), Timing(Stage.MODEL, 1.0, 3.0), Timing(Stage.VERIFY, 4.0, 0.5)]
    for task in range(4):
        await web.store(
            rollout(
                run,
                task,
                reward=float(task > 1),
                started_at=1e9 + 10 * task,
                policy_versions=["step-1", "step-2"] if task > 1 else ["step-1"],
                timings=timings,
                response=cut if task == 3 else None,
            )
        )
    charts = await web.get(f"runs/{run}/charts")
    assert sum(one["part"]["rollouts"] for one in charts["over_time"]) == 4
    assert charts["over_time"][0]["part"]["reward"]["value"] == 0.0
    assert charts["over_time"][-1]["so_far"]["value"] == 0.5
    assert [(one["version"], one["part"]["reward"]["value"]) for one in charts["versions"]] == [
        ("step-1", 0.0),
        ("step-2", 1.0),
    ]
    assert (charts["num_replies"], charts["num_truncated"]) == (4, 1)
    assert charts["stages"]["model"] | {"rollout": None} == {"calls": 8, "call_s": 2.0, "rollout": None}
    assert charts["stages"]["model"]["rollout"]["median"] == 4.0
    assert {"turns", "seconds"} <= set(charts["lengths"])


def test_rollouts_of_one_moment_have_no_course() -> None:
    assert over_time([]) == []
    assert over_time([Measured(5.0, 0, 1.0, "", is_truncated=False)] * 3) == []


def test_versions_come_in_the_order_in_which_they_answered() -> None:
    late, early = Measured(9.0, 0, 1.0, "a", is_truncated=True), Measured(1.0, 1, None, "b", is_truncated=False)
    found = by_version([late, early, Measured(2.0, 2, 1.0, "", is_truncated=False)])
    assert [(one.version, one.part.rollouts, one.part.failed, one.part.truncated) for one in found] == [
        ("b", 1, 1, 0),
        ("a", 1, 0, 1),
    ]


def test_a_spread_has_its_quantiles_between_values() -> None:
    assert spread([]) is None
    found = spread([float(number) for number in range(11)])
    assert found is not None
    assert (found.median, found.p90, found.max, found.mean) == (5.0, 9.0, 10.0, 5.0)
    one = spread([3.0])
    assert one is not None
    assert (one.median, one.p90) == (3.0, 3.0)
