"""gymq top: the state of a cluster, once and repeatedly."""

import json
from typing import Any

import pytest
from rich.console import Console

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.streams import delete_run
from gymq.errors import UsageError
from gymq.ext.shared.cluster_state import Overview, read_overview
from gymq.ext.shared.run_overview import run_overview
from gymq.ext.top.command import top
from gymq.ext.top.screen import screen, show_once
from gymq.protocol.messages import Run
from gymq.runs.collection.progress_view import Speed
from gymq.stats.running import RunningProfile
from tests.cli.test_names import AGENTS, drawn_at
from tests.support.stored import Stored, failure, place, rollout, world

__all__ = ["place", "world"]


def test_the_rate_is_that_of_the_last_half_minute():
    speed = Speed()
    for second in range(100):
        speed.note(float(second), second * second)
    assert speed.per_second() == pytest.approx([(99**2 - 69**2) / 30])


def test_a_single_look_has_no_rate():
    speed = Speed()
    speed.note(1.0, 5)
    assert speed.per_second() is None


def test_json_is_printed_once_only():
    with pytest.raises(UsageError, match="--json needs --once"):
        top(json=True)


async def finished_run(place: Stored, run: str) -> None:
    await place.announce(run, num_rollouts=3)
    await place.store(rollout(run, 0, 0), rollout(run, 0, 1, reward=0.0), failure(run, 1, retryable=False))
    await place.profile()


async def test_what_is_in_progress_is_one_json_object(place: Stored, run: str, capsys: Any) -> None:
    await finished_run(place, run)
    assert await show_once(0.2, 100, place.world.url, True) == 0
    printed = json.loads(capsys.readouterr().out)
    shown = next(one for one in printed["runs"] if one["run"] == run)
    assert (shown["num_rewarded"], shown["failures"], shown["mean_reward"]) == (2, {"model_failed": 1}, 0.5)
    assert shown["agents"]["asker"]["pass_at_k"]["2"]["value"] == 100.0
    assert printed["in_flight"] == sum(queue["in_flight"] for queue in printed["queues"])
    assert printed["rollouts_per_s"] >= 0.0


async def test_the_screen_shows_a_run_with_its_rates_and_failures(place: Stored, run: str, bus: Bus) -> None:
    await finished_run(place, run)
    console = Console(width=120, record=True)
    console.print(screen(await read_overview(bus, 1.0, 1000), 12.5))
    text = console.export_text()
    assert "12.5 rollouts/s" in text
    assert run in text
    assert "model_failed" in text


async def test_rollouts_of_deleted_runs_are_not_stored(place: Stored, run: str, bus: Bus) -> None:
    before = await read_overview(bus, 1.0, newest=10)
    await finished_run(place, run)
    await delete_run(bus.js, run)
    found = await read_overview(bus, 2.0, newest=10)
    assert (found.num_outcomes - before.num_outcomes, found.num_stored - before.num_stored) == (3, 0)
    console = Console(width=120, record=True)
    console.print(screen(found, 0.0))
    assert f"{found.num_stored:,} stored" in console.export_text()


async def test_a_look_reads_no_outcomes(place: Stored, run: str, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    await finished_run(place, run)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("outcomes are not read for an overview")

    for name in ("read", "read_all", "find", "find_outcome"):
        monkeypatch.setattr(OutcomeStore, name, refuse)
    assert run in [one.run for one in (await read_overview(bus, 1.0, 1000)).runs]


def test_top_counts_the_rollouts_of_a_run_against_the_run_and_not_against_each_environment():
    profile = RunningProfile()
    for task, agent in enumerate(AGENTS):
        profile.add(agent, task, 0, reward=float(task), num_rollouts=1)
    overview = run_overview(Run(run="both", created_at=1.0, num_rollouts=30), None)
    snapshot = profile.snapshot()
    members = {**{name: getattr(overview, name) for name in overview.__struct_fields__}, "agents": snapshot.agents}
    run = type(overview)(**{**members, "num_rewarded": 2, "mean_reward": 0.5})
    found = Overview(
        at=2.0, num_outcomes=2, num_stored=2, num_dead_letters=0, queues=[], workers=[], runs=[run], num_runs=1
    )
    lines = drawn_at(120, screen(found, 1.0)).splitlines()
    rows = [line.split() for line in lines if line.startswith("both ")]
    assert [row[1:5] for row in rows] == [
        ["all", "2", "of", "30"],
        ["example_session_state_mgmt", "1", "-", "0.000"],
        ["mcqa", "1", "-", "1.000"],
    ]
