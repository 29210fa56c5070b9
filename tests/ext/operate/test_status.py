"""gymq status against a running cluster."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from gymq.bus import Bus, streams
from gymq.bus.discovery import ServiceListing
from gymq.cluster.server import EmbeddedServer, find_running
from gymq.protocol.codec import encode
from gymq.protocol.messages import Task
from tests.cli.conftest import NUM_REPEATS, running_cluster, write_workers
from tests.cli.test_terminal import on_terminal


def store(folder: Path, subject: str, body: bytes, agent: str | None = None) -> None:
    async def publish() -> None:
        url = await find_running(folder / ".gymq" / "jetstream")
        assert url is not None
        bus = await Bus.connect(url, role="operator", name="test")
        js = bus.js
        if agent is not None:
            await streams.ensure_agent(js, agent)
        await js.store(subject, body)
        await bus.close()

    asyncio.run(publish())


def test_where_nothing_runs_it_says_how_to_start_something(gymq, here):
    called = gymq("status")
    assert called.status == 2
    assert "no cluster runs in this folder" in called.err
    assert "gymq up" in called.err


@pytest.mark.parametrize(
    "command", [("status",), ("rollouts",), ("collect", "--rows", "rows.jsonl", "--agent", "letters_agent")]
)
def test_a_server_that_is_not_there_is_one_sentence(gymq, here, command):
    (here / "rows.jsonl").write_text('{"responses_create_params": {"input": "x"}}')
    called = gymq(*command, "--nats", "nats://user:secret@127.0.0.1:1")
    assert called.status == 2
    why = "cannot connect to NATS at nats://***@127.0.0.1:1: connection refused"
    assert f"gymq: {why}; start one with `gymq up`, or check --nats\n" in called.err


def test_it_shows_server_workers_queues_streams_and_runs(gymq, cluster):
    called = gymq("status")
    assert called.status == 0
    assert "NATS server 2." in called.out
    for name in ("letters_agent", "letters", "policy_model", "simple_agent", "letters.py", "ROLLOUTS"):
        assert name in called.out
    assert cluster.run in called.out
    assert "12 of 12" in called.out


def test_what_a_model_read_although_it_was_slightly_off_is_counted(gymq, cluster):
    assert "policy_model: 3 replies with another `usage` than specified" in gymq("status").out


async def test_a_sandbox_whose_limits_are_not_exact_is_pointed_out(gymq, cluster):
    url = await find_running(cluster.folder / ".gymq" / "jetstream")
    assert url is not None
    bus = await Bus.connect(url, role="resources", name="test")
    weak = ServiceListing(
        bus,
        name="coder",
        worker="w-1",
        kind="resources",
        implementation="coder",
        subjects=["gym.seed.coder"],
        stats=lambda: {"load": 0, "sandbox_weakness": "limits are not exact: \x1b[2J"},
    )
    await weak.start()
    out = (await asyncio.to_thread(gymq, "status")).out
    await bus.close()
    assert "coder: its sandbox is weaker, limits are not exact: <1b>[2J" in out
    assert "letters: its sandbox" not in out


def test_the_password_of_the_server_is_not_shown(gymq, cluster):
    password = (cluster.folder / ".gymq" / "jetstream" / "password").read_text()
    assert password not in gymq("status").out
    assert password not in gymq("status", "--json").out


def test_as_json_it_has_the_numbers(gymq, cluster):
    found = gymq("status", "--json").json
    assert {worker["name"]: worker["kind"] for worker in found["workers"]}["letters_agent"] == "agents"
    assert all(worker["memory_bytes"] > 1_000_000 for worker in found["workers"] if worker["kind"] != "services")
    assert found["server"]["uptime_s"] > 0
    assert {stream["name"]: stream["messages"] for stream in found["streams"]}["ROLLOUTS"] >= 12
    (run,) = [run for run in found["runs"] if run["run"] == cluster.run]
    assert (run["num_stored"], run["num_rollouts"], run["num_rewarded"]) == (12, 12, 8)
    assert run["mean_reward"] == 0.5


@pytest.mark.nightly
def test_what_a_worker_did_is_counted(gymq, cluster, tmp_path):
    def counted():
        workers = {worker["name"]: worker for worker in gymq("status", "--json").json["workers"]}
        return workers["letters_agent"]["requests"], workers["letters_agent"]["errors"]

    requests, errors = counted()  # the tests before may have collected as well
    gymq(
        "collect",
        "-c",
        cluster.config,
        "--rows",
        "rows.jsonl",
        "-o",
        tmp_path / "x.jsonl",
        "--num-repeats",
        NUM_REPEATS,
    )
    for _ in range(50):
        if (found := counted()) == (requests + 12, errors + 4):
            break
    assert found == (requests + 12, errors + 4)


def test_dead_letters_are_counted_and_not_printed(gymq, cluster):
    store(cluster.folder, "gym.tasks", b'{"run": "r", "agent": "letters_agent", "row": 3, "num_repeats": "many"}')
    for _ in range(50):
        found = gymq("status", "--json").json
        if found["num_dead_letters"]:
            break
    assert "num_repeats" in found["dead_letters"][0]["reason"]
    out = gymq("status").out
    assert "`gymq dead-letters list` lists them" in out
    assert "num_repeats" not in out


def test_tasks_that_nobody_will_take_are_pointed_out(gymq, cluster):
    task = Task(run="orphans", task_index=0, rollout_index=0, agent="ghost", row=b"{}", timeout_s=1.0)
    store(cluster.folder, "gym.tasks.orphans.ghost", encode(task), agent="ghost")
    called = gymq("status")
    assert "1 tasks wait for the agent ghost, but no worker serves it" in called.out
    assert re.search(r"tasks of ghost +1 +0 +0", called.out)
    assert re.search(r"\d more are empty", called.out)


def test_an_idle_cluster_fits_a_screen(here):
    config = write_workers(here)
    with running_cluster(here, config):
        status, drawn = on_terminal(80, "status")
    assert status == 0
    assert re.search(r"queues: all \d are empty", drawn)
    assert "empty: TASKS, ROLLOUTS" in drawn
    assert len(drawn.splitlines()) < 24


def test_a_server_without_our_streams_is_told_apart(gymq, here):
    async def start() -> EmbeddedServer:
        server = EmbeddedServer(here / "other")
        await server.start()
        return server

    server = asyncio.run(start())
    try:
        for command in ("status", "rollouts"):
            called = gymq(command, "--nats", server.url)
            assert called.status == 2
            assert "no gymq streams" in called.err
    finally:
        asyncio.run(server.stop())


@pytest.mark.parametrize("command", ["rollouts", "status"])
def test_a_cluster_is_found_by_its_url(gymq, cluster, here, command):
    url = asyncio.run(find_running(cluster.folder / ".gymq" / "jetstream"))
    called = gymq(command, "--nats", url, "--json")
    assert called.status == 0
    # Of the runs `status` shows only the newest, and other tests may have made more of them.
    assert json.dumps("letters_agent" if command == "status" else cluster.run) in called.out


def test_a_run_that_does_not_exist_cannot_be_cancelled(cluster, gymq):
    called = gymq("cancel", "--run", "no-such-run")
    assert called.status == 2
    assert "run 'no-such-run' not found" in called.err


def test_runs_are_cancelled_by_a_pattern(cluster, gymq):
    called = gymq("cancel", "--run", "no-such-*")
    assert called.status == 2
    assert "stored runs matches 'no-such-*'" in called.err
    # A run of its own, since others that share the cluster look at the finished one. It has ended too.
    gymq("collect", "-c", cluster.config, "--rows", "rows.jsonl", "-o", "pattern.jsonl")
    run = json.loads((cluster.folder / "pattern_run.json").read_text())["run"]
    called = gymq("cancel", "--run", f"{run[:-1]}?")
    assert called.status == 0
    assert f"run {run} is cancelled; 0 of its rollouts" in called.out
    assert gymq("cancel", "--run", "[" + cluster.run[0] + "]*").status == 2  # a bracket is a bracket
