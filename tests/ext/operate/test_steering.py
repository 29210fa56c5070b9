"""gymq pause, resume and retune; `gymq collect` takes the options of the latter."""

import asyncio
from pathlib import Path

import pytest

from gymq.bus import Bus
from gymq.bus.queue.steering import read_steering
from gymq.cli import make_app
from gymq.cli.shared.parameters import CollectArguments
from gymq.cluster.server import find_running
from gymq.protocol.messages import Priority, Steering


def steering(folder, run) -> Steering | None:
    async def read() -> Steering | None:
        url = await find_running(folder / ".gymq" / "jetstream")
        assert url is not None
        bus = await Bus.connect(url, role="client", name="test")
        try:
            return await read_steering(bus, run)
        finally:
            await bus.close()

    return asyncio.run(read())


def test_a_run_is_paused_shown_as_paused_and_resumed(gymq, cluster):
    called = gymq("pause", "--run", cluster.run)
    assert (called.status, called.out.strip()) == (0, f"run {cluster.run}: paused, share 1")
    assert "paused" in gymq("rollouts").out
    # Other tests may have made more runs since than the newest, which are shown.
    shown = [run["paused"] for run in gymq("status", "--json").json["runs"] if run["run"] == cluster.run]
    assert shown in ([True], [])
    found = steering(cluster.folder, cluster.run)
    assert found is not None
    assert found.paused
    assert gymq("resume", "--run", cluster.run).out.strip() == f"run {cluster.run}: not paused, share 1"
    assert "paused" not in gymq("rollouts").out


def test_what_is_not_given_stays(gymq, cluster):
    assert gymq("retune", "--run", cluster.run, "--share", "4", "--priority", "urgent").status == 0
    assert gymq("retune", "--run", cluster.run, "--max-in-flight", "7").status == 0
    found = steering(cluster.folder, cluster.run)
    assert found is not None
    assert (found.share, found.priority, found.max_in_flight, found.paused) == (4.0, Priority.URGENT, 7, False)
    called = gymq("retune", "--run", cluster.run, "--max-in-flight", "0", "--share", "1", "--priority", "normal")
    assert called.out.strip() == f"run {cluster.run}: not paused, share 1"


def test_several_runs_are_steered_by_a_pattern(gymq, cluster):
    assert gymq("pause", "--run", f"{cluster.run[:-1]}?").status == 0
    found = steering(cluster.folder, cluster.run)
    assert found is not None
    assert found.paused
    gymq("resume", "--run", f"{cluster.run[:4]}*")


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_run_that_does_not_exist_is_named(gymq, cluster, command):
    called = gymq(command, "--run", "no-such-run")
    assert called.status == 2
    assert "run 'no-such-run' not found" in called.err


@pytest.mark.parametrize("option", [["--share", "0"], ["--share", "nan"], ["--priority", "high"], []])
def test_a_change_that_is_not_one_is_refused(gymq, cluster, option):
    called = gymq("retune", "--run", cluster.run, *option)
    assert called.status != 0
    assert steering(cluster.folder, cluster.run) is None or "share" in called.err or "priority" in called.err


@pytest.mark.parametrize(
    ("options", "given"),
    [
        (["--share", "2", "--priority", "background"], {"share": 2.0, "priority": "background"}),
        (["--priority", "--share", "0.5"], {"share": 0.5, "priority": True}),
    ],
)
def test_a_collection_takes_the_words_of_retune(options, given):
    _, bound, _ = make_app().parse_args(["collect", "--rows", "rows.jsonl", *options])
    assert bound.arguments == {"options": CollectArguments(rows=Path("rows.jsonl"), **given)}
