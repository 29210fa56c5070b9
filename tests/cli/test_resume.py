"""`gymq collect` given again: what it says of the run that is there, and what it does with it."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from gymq.bus import Bus, streams
from gymq.bus.queue.client import QueueClient
from gymq.cluster.server import EmbeddedServer, find_running
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Run, Task
from gymq.runs.stored_runs import Runs

from .conftest import Command, Finished, row, write_environment
from .endpoint import Endpoint
from .test_terminal import on_terminal


def collection(cluster: Finished, folder: Path, *more: object) -> list[object]:
    rows = folder / "rows.jsonl"
    if not rows.exists():
        rows.write_text("".join(json.dumps(row(question, "A")) + "\n" for question in ("first", "second")))
    return ["collect", "-c", cluster.config, "--rows", rows, "-o", folder / "out.jsonl", *more]


def run_of(folder: Path) -> str:
    run: str = json.loads((folder / "out_run.json").read_text())["run"]
    return run


def test_a_complete_run_says_so_and_shows_its_table(gymq: Command, cluster: Finished, tmp_path: Path) -> None:
    first = gymq(*collection(cluster, tmp_path, "--num-repeats", 2))
    assert "resuming" not in first.err
    again = gymq(*collection(cluster, tmp_path, "--num-repeats", 2))
    assert again.status == 0
    complete = f"run {run_of(tmp_path)} is complete: 4 of 4; --overwrite starts over, --num-repeats extends it"
    assert f"gymq: {complete}\n" in again.err
    assert "letters_agent" in again.out
    assert "mean reward" in again.out


def test_a_run_is_extended_and_its_statistics_are_those_of_all_rollouts(
    gymq: Command, cluster: Finished, tmp_path: Path
) -> None:
    gymq(*collection(cluster, tmp_path, "--num-repeats", 2))
    extended = gymq(*collection(cluster, tmp_path, "--num-repeats", 4, "--json"))
    assert extended.status == 0
    assert (
        "gymq: num_repeats changed from 2 to 4\n"
        "gymq: 4 rollouts added\n"
        f"gymq: resuming run {run_of(tmp_path)}: 4 of 8 done\n"
    ) in extended.err
    agent = extended.json["agents"]["letters_agent"]
    assert (agent["rollouts"], agent["max_k"], agent["tasks"]) == (8, 4, 2)
    expected = {"1": 50.0, "2": 83.3, "4": 100.0}
    assert {k: round(found["value"], 1) for k, found in agent["pass_at_k"].items()} == expected
    stored = gymq("profile", "--run", run_of(tmp_path), "--json").json["agents"]["letters_agent"]
    assert stored["rollouts"] == 8
    assert {k: round(found["value"], 1) for k, found in stored["pass_at_k"].items()} == expected
    refused = gymq(*collection(cluster, tmp_path, "--num-repeats", 3))
    assert refused.status == 2
    assert (
        f"gymq: {tmp_path}/out.jsonl: cannot be resumed because num_repeats changed from 4 to 3; "
        "pass --overwrite to start over, or another --output\n"
    ) in refused.err


def test_changed_options_of_workers_are_named(gymq: Command, cluster: Finished, tmp_path: Path) -> None:
    gymq(*collection(cluster, tmp_path))
    agent = "letters_agent.responses_api_agents.simple_agent"
    refused = gymq(*collection(cluster, tmp_path, f"++{agent}.max_steps=3"))
    assert refused.status == 2
    assert "cannot be resumed because letters_agent.max_steps changed from nothing to 3; pass" in refused.err
    misspelt = gymq(*collection(cluster, tmp_path, "letters_agent.max_stepz=3"))
    assert misspelt.status == 2
    assert "max_stepz" in misspelt.err
    assert "cannot be resumed" not in misspelt.err
    resumed = gymq(*collection(cluster, tmp_path, f"++{agent}.max_concurrency=3"))
    assert resumed.status == 0
    assert "gymq: letters_agent.max_concurrency changed from nothing to 3\n" in resumed.err


def test_a_running_cluster_with_other_options_is_not_taken_for_the_one_asked_for(
    gymq: Command, cluster: Finished, tmp_path: Path
) -> None:
    agent = "letters_agent.responses_api_agents.simple_agent"
    refused = gymq(*collection(cluster, tmp_path, f"++{agent}.max_steps=3"))
    assert refused.status == 2
    assert "the cluster that runs here serves letters_agent with other options or code than asked for" in refused.err
    assert not (tmp_path / "out.jsonl").exists()
    assert gymq(*collection(cluster, tmp_path, f"++{agent}.max_concurrency=3")).status == 0
    named = asyncio.run(find_running(cluster.folder / ".gymq" / "jetstream"))  # perhaps on another machine
    assert gymq(*collection(cluster, tmp_path, f"++{agent}.max_steps=3", "--nats", named, "--overwrite")).status == 0


@pytest.mark.nightly
def test_another_endpoint_of_the_same_model_extends_a_run_and_another_model_does_not(
    gymq: Command, here: Path, endpoint: Endpoint
) -> None:
    write_environment(here)
    command = ["collect", "--resources", "letters.py", "--rows", "rows.jsonl", "-o", "out.jsonl"]
    first = gymq(*command, "--model-url", endpoint.url, "--model", "m")
    assert first.status == 0, first.err
    elsewhere = endpoint.url.replace("/v1", "/v2")
    extended = gymq(*command, "--model-url", elsewhere, "--model", "m", "--num-repeats", 2)
    assert extended.status == 0, extended.err
    assert f"gymq: policy_model.openai_base_url changed from {endpoint.url} to {elsewhere}\n" in extended.err
    assert f"gymq: resuming run {run_of(here)}: 1 of 2 done\n" in extended.err
    assert len(endpoint.asked("first letter")) == 2
    asked = len(endpoint.bodies)
    refused = gymq(*command, "--model-url", endpoint.url, "--model", "n", "--num-repeats", 2)
    assert refused.status == 2
    assert "out.jsonl: cannot be resumed because policy_model.openai_model changed from m to n; pass" in refused.err
    assert len(endpoint.bodies) == asked, "the endpoint was asked before the change was found"


@pytest.mark.nightly
@pytest.mark.parametrize("columns", [80, 120])
def test_the_report_is_whole_on_a_terminal(cluster: Finished, tmp_path: Path, columns: int) -> None:
    assert on_terminal(columns, *collection(cluster, tmp_path))[0] == 0
    status, drawn = on_terminal(columns, *collection(cluster, tmp_path, "--num-repeats", 2))
    assert status == 0
    assert f"gymq: resuming run {run_of(tmp_path)}: 2 of 4 done" in drawn.replace("\r\n", "\n")


INTERRUPTED, SUBMITTED = "interrupted", "submitted"  # by a collection; row by row, by another program


async def leave_tasks(store: Path) -> None:
    async with EmbeddedServer(store) as server:
        bus = await Bus.connect(server.url, role="operator", name="test")
        await streams.ensure(bus.js, ["letters_simple_agent"])
        for run, fingerprint in ((INTERRUPTED, "rows/another configuration"), (SUBMITTED, "")):
            record = Run(run=run, created_at=time.time(), fingerprint=fingerprint, num_rollouts=1)
            await bus.js.store(subjects.RUN.of(run), encode(record))
            await bus.js.store(subjects.JOURNAL.of(run, 0, 0), b"an entry")
            content = json.dumps(row("first letter", "A")).encode()
            of_run = {"run": run, "task_index": 0, "rollout_index": 0, "num_rollouts": 1}
            await QueueClient(bus).submit(
                Task(**of_run, agent="letters_simple_agent", row=content, timeout_s=60.0)  # type: ignore[arg-type]
            )
        await bus.close()


async def left_after_deletion(store: Path, resumed: str | None) -> tuple[int, int]:
    """Return how many tasks and entries of journals the interrupted run has."""
    async with EmbeddedServer(store) as server:
        bus = await Bus.connect(server.url, role="operator", name="test")
        await Runs(bus).delete_tasks_of_others("this configuration", resumed=resumed)
        num_queued = await QueueClient(bus).num_queued(INTERRUPTED)
        entries = await bus.js.count_by_subject(streams.JOURNAL, subjects.JOURNAL.below(INTERRUPTED))
        await bus.close()
    return num_queued, sum(entries.values())


async def queued_and_stored(store: Path, run: str) -> tuple[int, int]:
    async with EmbeddedServer(store) as server:
        bus = await Bus.connect(server.url, role="operator", name="test")
        found = await QueueClient(bus).num_queued(run), await Runs(bus).num_stored(run)
        await bus.close()
    return found


def test_what_an_interrupted_run_left_in_the_queue_is_not_answered_with_another_configuration(
    gymq: Command, here: Path
) -> None:
    store = here / ".gymq" / "jetstream"
    asyncio.run(leave_tasks(store))
    write_environment(here)
    assert gymq("collect", "--resources", "letters.py", "--rows", "rows.jsonl", "-o", "out.jsonl").status == 0
    assert asyncio.run(queued_and_stored(store, INTERRUPTED)) == (0, 0)
    assert sum(asyncio.run(queued_and_stored(store, SUBMITTED))) == 1


def test_the_tasks_of_a_run_that_is_resumed_with_another_configuration_stay(tmp_path: Path) -> None:
    asyncio.run(leave_tasks(tmp_path))
    assert asyncio.run(left_after_deletion(tmp_path, INTERRUPTED)) == (1, 1)
    assert asyncio.run(left_after_deletion(tmp_path, None)) == (0, 1), "what was paid for was removed"
