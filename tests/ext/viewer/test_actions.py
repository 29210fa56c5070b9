"""What a reader does with a run in the viewer, and where a viewer only shows."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.steering import read_steering
from gymq.ext.viewer.viewer import Viewer
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import DeadLetter, FailureClass, Task
from gymq.runs.stored_runs import Runs

from .conftest import Web, failure, rollout


async def post(web: Web, path: str, body: Any = None) -> tuple[int, Any]:
    async with web.session.post(f"{web.url}api/{path}", json=body or {}) as answer:
        return answer.status, await answer.json()


async def test_a_run_gets_a_note_and_tags_and_is_found_by_them(web: Web, run: str) -> None:
    await web.announce(run, num_rollouts=1, models=["policy = m"])
    assert await post(web, f"runs/{run}/description", {"note": "with a *larger* batch", "tags": [run[:6], "b"]}) == (
        200,
        {"note": "with a *larger* batch", "tags": [run[:6], "b"]},
    )
    record = await Runs(web.world.bus).record(run)
    assert record is not None
    assert (record.note, record.tags, record.models) == ("with a *larger* batch", [run[:6], "b"], ["policy = m"])
    view = await web.get(f"runs/{run}")
    assert view["overview"]["tags"] == [run[:6], "b"]
    for text in (run[:6], "LARGER* batch"):
        assert run in [one["overview"]["run"] for one in (await web.get("runs", text=text))["runs"]]


@pytest.mark.parametrize("body", [{"note": 1}, {"tags": ["x" * 41]}, {"tags": [""]}, {"note": "", "more": 1}, []])
async def test_a_description_that_does_not_fit_is_refused(web: Web, run: str, body: Any) -> None:
    await web.announce(run, num_rollouts=1)
    async with web.session.post(f"{web.url}api/runs/{run}/description", json=body) as answer:
        assert answer.status == 422


@pytest.mark.parametrize("action", ["description", "retune"])
@pytest.mark.parametrize("body", [b'{"note": "\xff"}', b"{", b"[" * 100_000])
async def test_a_body_that_cannot_be_decoded_is_refused(web: Web, run: str, action: str, body: bytes) -> None:
    await web.announce(run, num_rollouts=1)
    headers = {"Content-Type": "application/json"}
    async with web.session.post(f"{web.url}api/runs/{run}/{action}", data=body, headers=headers) as answer:
        assert answer.status == 422


async def test_a_run_is_cancelled_with_what_is_queued_of_it(web: Web, run: str) -> None:
    await web.announce(run, num_rollouts=2)
    queue = QueueClient(web.world.bus)
    for index in range(2):
        await queue.submit(
            Task(run=run, task_index=0, rollout_index=index, num_rollouts=2, agent="nobody", row=b"{}", timeout_s=60.0)
        )
    assert (await web.get(f"runs/{run}"))["state"] == "queued"
    assert await post(web, f"runs/{run}/cancel") == (200, {"num_queued": 2})
    (listed,) = (await web.get("runs", text=run))["runs"]
    assert listed["state"] == "cancelled"
    assert (await post(web, "runs/none-of-this-name/cancel"))[0] == 404


async def test_a_run_is_paused_resumed_and_retuned_and_keeps_it_for_the_next_viewer(web: Web, run: str) -> None:
    await web.announce(run, num_rollouts=2)
    status, paused = await post(web, f"runs/{run}/pause")
    assert (status, paused["paused"]) == (200, True)
    async with Viewer(web.world.bus, "127.0.0.1") as later, web.session.get(f"{later.url}api/runs/{run}") as answer:
        assert (await answer.json())["state"] == "paused"
    status, retuned = await post(web, f"runs/{run}/retune", {"share": 4, "priority": "urgent", "max_in_flight": 3})
    assert (status, retuned["share"], retuned["priority"], retuned["max_in_flight"]) == (200, 4.0, "urgent", 3)
    assert retuned["paused"]
    status, resumed = await post(web, f"runs/{run}/resume")
    assert status == 200
    assert not resumed.get("paused")
    steering = await read_steering(web.world.bus, run)
    assert steering is not None
    assert (steering.share, steering.priority, steering.max_in_flight, steering.paused) == (4.0, "urgent", 3, False)
    await post(web, f"runs/{run}/retune", {"max_in_flight": None})
    steering = await read_steering(web.world.bus, run)
    assert steering is not None
    assert (steering.share, steering.max_in_flight) == (4.0, None)


@pytest.mark.parametrize("path", ["pause", "resume", "retune"])
async def test_a_run_that_does_not_exist_cannot_be_steered(web: Web, path: str) -> None:
    assert (await post(web, f"runs/none-of-this-name/{path}", {}))[0] == 404


@pytest.mark.parametrize(
    "body", [{"share": 0}, {"share": "much"}, {"priority": "high"}, {"max_in_flight": 0}, {"paused": True}, []]
)
async def test_a_change_of_a_run_that_is_not_one_is_refused(web: Web, run: str, body: Any) -> None:
    await web.announce(run, num_rollouts=2)
    async with web.session.post(f"{web.url}api/runs/{run}/retune", json=body) as answer:
        assert answer.status == 422
    assert await read_steering(web.world.bus, run) is None


@pytest.mark.parametrize("path", ["runs/{}", "rollouts/{}/0/0"])
async def test_failures_are_not_requeued_where_no_agent_would_take_them(web: Web, run: str, path: str) -> None:
    await web.announce(run, num_rollouts=1)
    await web.store(failure(run, 0))
    task = Task(run=run, task_index=0, rollout_index=0, num_rollouts=1, agent="asker", row=b"{}", timeout_s=60.0)
    letter = DeadLetter(
        subject=subjects.TASK.of(run, "asker"),
        reason="no GPU",
        body=encode(task),
        at=1.7e9,
        rollout=f"{run}/0/0",
        failure_class=FailureClass.MODEL_FAILED,
    )
    await web.world.bus.js.store(subjects.DEAD_LETTER_OF_RUN.of("agent", run), encode(letter))
    status, done = await post(web, f"{path.format(run)}/requeue")
    assert status == 200
    assert (done["requeued"], done["kept"]) == (0, 1)
    assert "no agent named 'asker' is running" in done["reasons"][0]
    assert (await post(web, f"rollouts/{run}/0/1/requeue"))[1]["kept"] == 0


async def test_an_export_has_a_line_for_each_rollout_failures_included(web: Web, run: str) -> None:
    await web.announce(run)
    broken = failure(run, 1)
    broken.row = b"\xff"
    await web.store(rollout(run, 0, reward=0.5), broken)
    async with web.session.get(f"{web.url}api/runs/{run}/export") as answer:
        assert answer.headers["Content-Disposition"] == f'attachment; filename="{run}.jsonl"'
        lines = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert [line.get("reward") for line in lines] == [0.5, None]
    assert lines[1]["_ng_failure_message"] == "no GPU"
    assert (await web.status("runs/none-of-this-name/export"))[0] == 404


async def test_a_change_needs_json_so_that_no_form_of_another_page_can_make_it(web: Web, run: str) -> None:
    await web.announce(run, num_rollouts=1)
    for path in (
        *(f"runs/{run}/{name}" for name in ("cancel", "requeue", "description")),
        f"rollouts/{run}/0/0/requeue",
    ):
        async with web.session.post(f"{web.url}api/{path}", data="{}") as answer:
            assert answer.status == 415


@pytest.mark.parametrize(("host", "may_change"), [("127.0.0.1", True), ("0.0.0.0", False)])
async def test_a_viewer_that_other_machines_reach_changes_nothing(
    web: Web, run: str, host: str, may_change: bool, tmp_path: Path
) -> None:
    await web.announce(run, num_rollouts=1)
    async with Viewer(web.world.bus, host, logs=tmp_path, may_change=True) as viewer:
        async with web.session.get(f"{viewer.url}api/site") as answer:
            assert await answer.json() == {"may_change": may_change, "has_logs": True}
        async with web.session.post(f"{viewer.url}api/runs/{run}/description", json={"note": "n"}) as answer:
            assert answer.status == (200 if may_change else 403)


async def test_log_lines_of_a_worker_and_about_a_rollout_are_found(web: Web, tmp_path: Path) -> None:
    lines = [
        {"time": "2026-01-01T00:00:02Z", "level": "warning", "worker": "w1", "rollout": "r/0/0", "message": "second"},
        {"time": "2026-01-01T00:00:01Z", "level": "info", "worker": "w2", "message": "first"},
    ]
    (tmp_path / "a.log").write_text(json.dumps(lines[0]) + "\nnot JSON\n")
    (tmp_path / "b.log").write_bytes(json.dumps(lines[1]).encode() + b'\n[1]\n{"message": "\xff"}\n' + b"[" * 5000)
    async with Viewer(web.world.bus, "127.0.0.1", logs=tmp_path) as viewer, aiohttp.ClientSession() as session:

        async def found(**query: str) -> list[str]:
            async with session.get(f"{viewer.url}api/logs", params=query) as answer:
                return [line["message"] for line in (await answer.json())["lines"]]

        assert await found() == ["first", "second"]
        assert await found(worker="w2") == ["first"]
        assert await found(rollout="r/0/0") == ["second"]
        assert await found(rollout="r/0/1") == []
    assert await web.get("logs") == {"lines": [], "is_here": False}
