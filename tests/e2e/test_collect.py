"""From a data set to files, against a running cluster."""

import asyncio
import json
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gymq.bus import streams
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.data.materialise import MaterialiseOptions
from gymq.data.resume import Resume
from gymq.data.rows import RowError
from gymq.data.run_changes import RecordedInstance
from gymq.data.run_configuration import RunConfiguration, read_configuration
from gymq.data.run_files import Manifest, RunFiles
from gymq.errors import UsageError
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Task
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.failure_limit import MaxFailures
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan
from gymq.runs.collection.progress import Progress
from gymq.runs.stored_runs import Runs
from gymq.stats.files import read_statistics
from tests.support.waiting import until

from .running_cluster import RunningCluster, row

pytestmark = pytest.mark.asyncio(loop_scope="session")

Rows = list[dict[str, Any]]


class Desk:
    """One data set and the files of its run."""

    def __init__(self, cluster: RunningCluster, folder: Path) -> None:
        self.cluster = cluster
        self.input = folder / "rows.jsonl"
        self.output = folder / "out" / "rollouts.jsonl"
        self.files = RunFiles(self.output)

    def write_input(self, rows: Rows) -> None:
        self.input.write_text("".join(json.dumps(content) + "\n" for content in rows))

    def plan(self, *, agent: str | None = "asker", **options: Any) -> RunPlan:
        of_rows = {name: options.pop(name) for name in MaterialiseOptions.model_fields.keys() & options.keys()}
        materialise = MaterialiseOptions(agent_name=agent, **of_rows)
        return RunPlan(CollectOptions(self.input, self.output, materialise, **options))

    def collection(self, *, report: Callable[[str], None] | None = None, **options: Any) -> Collection:
        return Collection(self.cluster.bus, self.plan(**options), report)

    async def collect(self, **options: Any) -> Progress:
        return await self.collection(**options).run()

    def run(self) -> str:
        manifest = self.files.read_manifest()
        assert manifest is not None
        return manifest.run

    def calls(self) -> int:
        return self.cluster.calls(self.run()).total()

    def content(self) -> dict[str, bytes]:
        """Every file there is, by name."""
        folder = self.output.parent
        return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


@pytest.fixture
def desk(cluster: RunningCluster, tmp_path: Path) -> Desk:
    return Desk(cluster, tmp_path)


def read(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text().splitlines()]


def keys(path: Path) -> list[tuple[int, int]]:
    return sorted((found["_ng_task_index"], found["_ng_rollout_index"]) for found in read(path))


async def test_every_row_ends_up_in_the_output_with_its_response_and_reward(desk: Desk) -> None:
    rows = [row("a", id=1, script={"reward": 0.5}), row("b", id=2)]
    desk.write_input(rows)
    progress = await desk.collect(num_repeats=2)
    assert (progress.total, progress.done, progress.failed) == (4, 4, 0)
    found = sorted(read(desk.output), key=lambda line: (line["_ng_task_index"], line["_ng_rollout_index"]))
    for position, line in enumerate(found):
        asked, response = line.pop("asked"), line.pop("response")
        assert asked >= 1
        assert [item["content"][0]["text"] for item in response["output"]] == ["done"]
        assert line == {
            **rows[position // 2],
            "agent_ref": {"name": "asker"},
            "reward": [0.5, 1.0][position // 2],
            "_ng_task_index": position // 2,
            "_ng_rollout_index": position % 2,
        }


async def test_the_materialised_rows_are_those_that_were_asked_for(desk: Desk) -> None:
    rows = [row("a", id=1), row("b", id=2)]
    desk.write_input(rows)
    await desk.collect(num_repeats=2)
    expected = [
        {**content, "agent_ref": {"name": "asker"}, "_ng_task_index": task, "_ng_rollout_index": rollout}
        for task, content in enumerate(rows)
        for rollout in range(2)
    ]
    assert read(desk.files.materialised) == expected


async def test_the_manifest_tells_what_the_run_was_made_of(desk: Desk) -> None:
    desk.write_input([row()])
    await desk.collect(num_repeats=3)
    manifest = desk.files.read_manifest()
    assert manifest is not None
    assert manifest.num_rollouts == 3
    assert manifest.input == str(desk.input)
    assert manifest.settings["num_repeats"] == 3
    assert manifest.run.startswith("rollouts-")


async def test_the_connection_stays_alive_while_the_files_of_a_large_run_are_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader_threads: list[int] = []

    def read_files(*sources: Any, **options: Any) -> Resume:
        reader_threads.append(threading.get_ident())
        return Resume(*sources, **options)

    monkeypatch.setattr("gymq.runs.collection.collection.Resume", read_files)
    desk.write_input([row()])
    progress = await desk.collect()
    assert progress.done == 1
    assert len(reader_threads) == 1
    assert threading.get_ident() not in reader_threads


async def test_failures_have_a_file_of_their_own_and_no_reward(desk: Desk) -> None:
    desk.write_input(
        [row("model", script={"model_nonsense": True}), row(f"{desk.output}", script={"verify_fails": 99})]
    )
    progress = await desk.collect()
    assert progress.failed == 2
    assert progress.failures == {"model_failed": 1, "verifier_failed": 1}
    assert read(desk.output) == []
    model, verifier = sorted(read(desk.files.failures), key=lambda line: line["_ng_task_index"])
    assert model["_ng_failure_class"] == "model_failed"
    assert model["_ng_failure_stage"] == "model"
    assert model["_ng_failure_terminal"] is False
    assert "not a Responses object" in model["_ng_failure_message"]
    assert "reward" not in model
    assert "response" not in model
    assert verifier["_ng_failure_class"] == "verifier_failed"
    assert verifier["response"]["output"][0]["content"][0]["text"] == "done"
    assert "reward" not in verifier


async def test_what_failed_is_tried_again_at_the_next_start_and_ends_in_the_output_once(desk: Desk) -> None:
    desk.write_input([row("plain"), row("fails", script={"model_fails": 4})])
    assert (await desk.collect()).failed == 1
    again = await desk.collect()
    assert (again.failed, again.failures) == (0, {})
    assert (await desk.collect()).failed == 0
    assert keys(desk.output) == [(0, 0), (1, 0)]
    agent = read_statistics(desk.files).profile.snapshot().agents["asker"]
    assert (agent.failures, agent.failed_attempts) == ({}, {"model_failed": 1})
    assert desk.calls() == 1 + 5
    assert len(await desk.cluster.stored(desk.run())) == 2


async def test_a_failure_is_written_whose_sequence_another_had_before_the_store_was_lost(desk: Desk) -> None:
    desk.write_input([row(script={"agent": "raise"})])
    await desk.collect(agent="odd")
    (failed,) = read(desk.files.failures)
    await streams.delete_run(desk.cluster.js, desk.run())
    sequences = range(failed["_ng_failure_sequence"] + 1, failed["_ng_failure_sequence"] + 200)
    earlier = [failed | {"_ng_failure_sequence": sequence, "_ng_failure_curable": True} for sequence in sequences]
    desk.files.failures.write_text("".join(json.dumps(line) + "\n" for line in earlier))
    assert (await desk.collect(agent="odd")).failures == {"agent_failed": 1}
    *before, last = read(desk.files.failures)
    assert before == earlier
    assert "_ng_failure_curable" not in last


async def test_failures_that_came_while_no_collection_ran_are_not_those_of_the_next(desk: Desk) -> None:
    desk.write_input([row("fails", script={"model_fails": 4})])
    before = await desk.collect()
    assert (before.failed, before.retried) == (1, 2)
    desk.files.failures.write_bytes(b"")  # as after a stop: stored, but not read
    again = await desk.collect()
    assert (again.done, again.failures, again.retried) == (1, {}, 1)


async def test_what_failed_for_good_is_not_tried_again(desk: Desk) -> None:
    desk.write_input([row("without `expected`", agent_ref={"name": "adder"})])
    assert (await desk.collect()).failed == 1
    failed = read(desk.files.failures)
    assert failed[0]["_ng_failure_terminal"] is True
    assert (await desk.collect()).failed == 1
    assert read(desk.files.failures) == failed


async def test_what_failed_for_good_while_no_collection_ran_is_not_tried_again(desk: Desk) -> None:
    desk.write_input([row(script={"agent": "raise"})])
    assert (await desk.collect(agent="odd")).failed == 1
    failed = read(desk.files.failures)
    desk.files.failures.write_bytes(b"")  # as after a stop: stored, but not read
    again = await desk.collect(agent="odd")
    assert (again.submitted, again.failed) == (0, 1)
    assert read(desk.files.failures) == failed


async def test_a_finished_collection_asks_nothing_more_and_says_so(desk: Desk) -> None:
    desk.write_input([row()])
    said: list[str] = []
    await desk.collect(num_repeats=5, report=said.append)
    assert said == [f"run {desk.run()}: 5 rollouts, written to {desk.files.output}"]
    said.clear()
    before = desk.content()
    progress = await desk.collect(num_repeats=5, report=said.append)
    complete = f"run {desk.run()} is complete: 5 of 5"
    assert said == [f"{complete}; --overwrite starts over, --num-repeats extends it"]
    assert (progress.before, progress.done, progress.submitted) == (5, 5, 0)
    assert desk.calls() == 5
    assert desk.content() == before


REASONS = {
    "input": "none of its rows is in {input}",
    "num_repeats": "num_repeats changed from 2 to 1",
    "limit": "limit changed from nothing to 1",
    "agent": "agent_name changed from asker to odd",
    "seed": "num_repeats_add_seed changed from false to true",
    "sampling": "responses_create_params.temperature changed from nothing to 0.5",
    "model": "policy.model changed from small to large",
    "implementation": "policy changed from openai_model to vllm_model",
    "no config": "it was started with a configuration of its workers, and none is given now",
}


async def test_a_changed_setting_is_named_with_both_values_and_nothing_is_touched(desk: Desk) -> None:
    rows = [row("a"), row("b")]
    desk.write_input(rows)
    first: dict[str, Any] = {"num_repeats": 2, **configured(model="small")}
    await desk.collect(**first)
    before = desk.content()
    for change, reason in REASONS.items():
        options = dict(first)
        match change:
            case "input":
                desk.write_input([row("c"), row("d")])
            case "num_repeats":
                options["num_repeats"] = 1
            case "limit":
                options["limit"] = 1
            case "agent":
                options["agent"] = "odd"
            case "seed":
                options["num_repeats_add_seed"] = True
            case "sampling":
                options["responses_create_params"] = {"temperature": 0.5}
            case "model":
                options |= configured(model="large")
            case "implementation":
                options |= configured("vllm_model", model="small")
            case "no config":
                options |= {"config": {}, "config_digest": ""}
        with pytest.raises(UsageError) as refused:
            await desk.collect(**options)
        because = f"{desk.output}: cannot be resumed because {reason.format(input=desk.input)}; "
        assert str(refused.value) == because + "pass --overwrite to start over, or another --output"
        assert desk.content() == before
        desk.write_input(rows)
        assert (await desk.collect(**first)).submitted == 0


def by_prompt(file: Path) -> dict[str, dict[str, Any]]:
    """The last rollout of each prompt in a file."""
    return {
        line["responses_create_params"]["input"]: line
        for line in sorted(read(file), key=lambda one: one["_ng_rollout_index"])
    }


def configured(implementation: str = "openai_model", **options: Any) -> dict[str, Any]:
    """The options of a collection whose model is configured so."""
    config = {"policy": RecordedInstance("models", implementation, options)}
    return {"config": config, "config_digest": f"{implementation} {options}"}


async def test_another_endpoint_with_the_same_model_resumes_and_is_named(desk: Desk) -> None:
    desk.write_input([row("a")])
    await desk.collect(**configured(model="m", openai_base_url="http://a/v1", openai_api_key="****"))
    said: list[str] = []
    elsewhere = configured(model="m", openai_base_url="http://b/v1", openai_api_key="****", max_concurrent_requests=4)
    progress = await desk.collect(report=said.append, **elsewhere)
    assert (progress.done, progress.submitted) == (1, 0)
    assert said[:2] == [
        "policy.max_concurrent_requests changed from nothing to 4",
        "policy.openai_base_url changed from http://a/v1 to http://b/v1",
    ]
    said.clear()
    await desk.collect(report=said.append, **elsewhere)
    assert len(said) == 1


async def test_the_configuration_is_stored_with_the_run_and_follows_what_is_changed(desk: Desk) -> None:
    desk.write_input([row("a")])
    elsewhere = {"model": "m", "openai_api_key": "****", "openai_base_url": "http://a/v1"}
    await desk.collect(**configured(**elsewhere), responses_create_params={"temperature": 0.5})
    runs = Runs(desk.cluster.bus)

    async def stored() -> tuple[RunConfiguration, str]:
        record = await runs.record(desk.run())
        assert record is not None
        found = read_configuration(record.configuration)
        assert found is not None
        return found, record.note

    found, _ = await stored()
    assert found.options["responses_create_params.temperature"] == 0.5
    assert (found.options["num_repeats"], found.options["input"]) == (1, str(desk.input))
    assert found.options["token_ids"] == "full"
    assert found.workers["policy"] == RecordedInstance("models", "openai_model", elsewhere)
    record = await runs.record(desk.run())
    assert record is not None
    described = encode(msgspec.structs.replace(record, note="a note"))
    await desk.cluster.bus.js.store(subjects.RUN.of(desk.run()), described)
    elsewhere["openai_base_url"] = "http://b/v1"
    await desk.collect(num_repeats=2, **configured(**elsewhere), responses_create_params={"temperature": 0.5})
    found, note = await stored()
    assert (found.options["num_repeats"], found.workers["policy"].options, note) == (2, elsewhere, "a note")


async def test_more_repeats_are_added_to_each_task(desk: Desk) -> None:
    half = row("b", id=2, script={"reward": 0.5})
    rows = [row("a", id=1), half, row("a", id=1)]  # the first and the last are one task
    desk.write_input(rows)
    await desk.collect(num_repeats=2, num_repeats_add_seed=True)
    run, first, old_rows = desk.run(), read(desk.output), read(desk.files.materialised)
    said: list[str] = []
    progress = await desk.collect(num_repeats=3, num_repeats_add_seed=True, report=said.append)
    assert (progress.total, progress.before, progress.submitted, progress.done) == (9, 6, 3, 9)
    assert said == [
        "num_repeats changed from 2 to 3",
        "3 rollouts added",
        f"resuming run {run}: 6 of 9 done",
    ]
    assert desk.run() == run
    assert read(desk.output)[:6] == first
    assert keys(desk.output) == [*((0, index) for index in range(6)), *((1, index) for index in range(3))]
    assert all(line in read(desk.files.materialised) for line in old_rows)
    assert set(desk.cluster.calls(run).values()) == {1}
    record = await Runs(desk.cluster.bus).record(run)
    assert record is not None
    assert record.num_rollouts == 9
    agent = read_statistics(desk.files).profile.snapshot().agents["asker"]
    assert (agent.max_k, agent.tasks, agent.rollouts) == (6, 2, 9)
    assert progress.rewards.estimate() == agent.mean_reward


@pytest.mark.parametrize("change", ["appended", "limit"])
async def test_more_rows_are_added_as_tasks(desk: Desk, change: str) -> None:
    rows = [row(text) for text in "abcd"]
    desk.write_input(rows[:2] if change == "appended" else rows)
    await desk.collect(num_repeats=2, limit=2)
    run, before = desk.run(), read(desk.output)
    desk.write_input(rows)
    progress = await desk.collect(num_repeats=2, limit=None)
    assert (progress.total, progress.before, progress.submitted) == (8, 4, 4)
    assert desk.run() == run
    assert read(desk.output)[:4] == before
    assert keys(desk.output) == [(task, rollout) for task in range(4) for rollout in range(2)]
    with pytest.raises(UsageError, match="limit changed from nothing to 3; pass --overwrite"):
        await desk.collect(num_repeats=2, limit=3)


async def test_rows_and_repeats_grow_together_and_a_bad_row_is_refused_once(desk: Desk) -> None:
    desk.write_input([row("a")])
    desk.input.write_bytes(desk.input.read_bytes() + b"{broken\n")
    await desk.collect()
    for _ in range(2):
        with desk.input.open("ab") as file:
            file.write(json.dumps(row(f"more {file.tell()}")).encode() + b"\n{worse\n")
    progress = await desk.collect(num_repeats=2)
    assert (progress.total, progress.done, progress.submitted, progress.refused) == (6, 6, 5, 3)
    assert [line["_ng_failure_message"].split(": ")[0] for line in read(desk.files.failures)] == [
        f"{desk.input}:{number}" for number in (2, 4, 6)
    ]


async def test_a_refused_row_is_in_the_failures_once_wherever_its_file_is(desk: Desk) -> None:
    desk.write_input([row("a"), row("b", script={"model_nonsense": True})])
    desk.input.write_bytes(desk.input.read_bytes() + b"{broken\n")
    await desk.collect()
    before = read(desk.files.failures)
    desk.input = desk.input.rename(desk.input.with_name("moved.jsonl"))
    with desk.files.failures.open("ab") as file:
        file.write(b'\n{"torn')
    assert (await desk.collect(num_repeats=2)).refused == 1
    written = read(desk.files.failures)
    refused = [line for line in written if "_ng_task_index" not in line]
    others = [line for line in written if "_ng_task_index" in line]
    assert ["moved.jsonl:3" in line["_ng_failure_message"] for line in refused] == [True]
    assert others[: len(before) - 1] == before[1:]


@pytest.mark.parametrize("is_stored", [True, False])
async def test_rollouts_of_rows_that_are_as_before_are_kept_wherever_they_are_now(desk: Desk, is_stored: bool) -> None:
    """A row is changed, one is removed, one inserted, and the others are in another order."""
    desk.write_input([row(text) for text in "abcde"])
    seeds: dict[str, Any] = {"num_repeats": 2, "num_repeats_add_seed": True}
    await desk.collect(**seeds)
    first, before = desk.run(), by_prompt(desk.output)
    if not is_stored:
        await streams.delete_run(desk.cluster.bus.js, first)
    desk.write_input([row(text) for text in ("new", "c", "a", "b changed", "e")])
    desk.plan(**seeds).check()
    said: list[str] = []
    progress = await desk.collect(report=said.append, **seeds)
    second, after = desk.run(), by_prompt(desk.output)
    assert said == [
        f"3 of 5 rows are as before: their rollouts are kept; 2 rows are new; 2 rows are removed; "
        f"4 rollouts of removed rows moved to {desk.files.removed}; run {second} follows {first}",
        f"resuming run {second}: 6 of 10 done",
    ]
    assert (progress.total, progress.before, progress.submitted, progress.done) == (10, 6, 4, 10)
    assert (
        keys(desk.output) == keys(desk.files.materialised) == [(task, index) for task in range(5) for index in (0, 1)]
    )
    assert {line["_ng_task_index"]: prompt for prompt, line in after.items()} == dict(
        enumerate(("new", "c", "a", "b changed", "e"))
    )
    for prompt in "ace":
        assert {**before[prompt], "_ng_task_index": 0} == {**after[prompt], "_ng_task_index": 0}
    assert by_prompt(desk.files.removed) == {prompt: before[prompt] for prompt in "bd"}
    assert desk.cluster.calls(second).total() == 4
    stored = [outcome async for _, outcome in OutcomeStore(desk.cluster.bus).read(second)]
    assert len(stored) == (10 if is_stored else 4)
    assert (await desk.collect(**seeds)).submitted == 0
    assert not [name for name in desk.content() if name.startswith(".")]


async def test_rows_that_only_changed_places_are_rolled_out_no_more(desk: Desk) -> None:
    desk.write_input([row("a"), row("b", script={"model_fails": 4})])
    await desk.collect()
    desk.write_input([row("b", script={"model_fails": 4}), row("a")])
    said: list[str] = []
    progress = await desk.collect(report=said.append)
    assert said[0].startswith("2 of 2 rows are as before: their rollouts are kept; run ")
    assert (progress.before, progress.failed) == (1, 1)
    assert not desk.files.removed.exists()


async def test_rewards_of_before_a_change_of_the_verifier_are_counted_in_the_manifest(desk: Desk) -> None:
    def verified_by(source: str) -> dict[str, Any]:
        agent = RecordedInstance("agents", "simple_agent", {"resources_server.name": "grader"})
        return {"config": {"asker": agent, "grader": RecordedInstance("resources", "grader.py", {}, source)}}

    def older() -> dict[str, int]:
        manifest = desk.files.read_manifest()
        assert manifest is not None
        return manifest.older_rewards

    desk.write_input([row("a"), row("b")])
    await desk.collect(**verified_by("first"))
    assert older() == {}
    said: list[str] = []
    await desk.collect(num_repeats=2, report=said.append, **verified_by("second"))
    assert said[0] == "grader.py changed; rollouts that are done stay as they are"
    assert older() == {"asker": 2}
    await desk.collect(num_repeats=2, **verified_by("second"))
    assert older() == {"asker": 2}
    desk.write_input([row("b"), row("c")])
    await desk.collect(num_repeats=2, **verified_by("third"))
    assert older() == {"asker": 2}  # of the row that was kept


async def test_changed_rows_and_fewer_repeats_are_refused_before_a_cluster_is_started(desk: Desk) -> None:
    desk.write_input([row("a"), row("b")])
    await desk.collect(num_repeats=2)
    desk.write_input([row("a"), row("c")])
    with pytest.raises(UsageError, match="cannot be resumed because num_repeats changed from 2 to 1"):
        desk.plan(num_repeats=1).check()
    desk.write_input([row("c")])
    with pytest.raises(UsageError, match=r"cannot be resumed because none of its rows is in \S*rows\.jsonl"):
        desk.plan(num_repeats=2).check()


async def test_a_run_without_its_rows_is_not_extended(desk: Desk) -> None:
    desk.write_input([row("a")])
    await desk.collect()
    desk.files.materialised.unlink()
    with pytest.raises(UsageError, match=r"rollouts_materialized_inputs\.jsonl with its rows is gone"):
        await desk.collect(num_repeats=2)


class Killed(BaseException):
    """What a collection is ended by at a chosen step."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Have the next collection end at a step of its start, once."""

    async def store(*_: Any, **__: Any) -> None:
        raise Killed

    def end(*_: Any, **__: Any) -> None:
        raise Killed

    def write_and_end(files: RunFiles, manifest: Manifest) -> None:
        write(files, manifest)
        raise Killed

    write = RunFiles.write_manifest
    match step:
        case "before the manifest":
            monkeypatch.setattr(RunFiles, "write_manifest", end)
        case "after the manifest":
            monkeypatch.setattr(RunFiles, "write_manifest", write_and_end)
        case "before the record":
            monkeypatch.setattr("gymq.runs.collection.run_setup.RunSetup._record", store)
        case "before the tasks":
            monkeypatch.setattr(QueueClient, "submit", store)


@pytest.mark.parametrize("step", ["before the manifest", "after the manifest", "before the record", "before the tasks"])
async def test_a_collection_killed_while_it_is_extended_ends_right_with_the_same_command(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    desk.write_input([row("a"), row("b")])
    await desk.collect(num_repeats=2)
    desk.write_input([row("a"), row("b"), row("c")])
    with monkeypatch.context() as patched:
        kill_at(patched, step)
        with pytest.raises((Killed, BaseExceptionGroup)):
            await desk.collect(num_repeats=3)
    progress = await desk.collect(num_repeats=3)
    assert (progress.total, progress.done, progress.before) == (9, 9, 4)
    assert keys(desk.output) == [(task, rollout) for task in range(3) for rollout in range(3)]
    assert set(desk.cluster.calls(desk.run()).values()) == {1}
    assert len(read(desk.files.materialised)) == 9
    record = await Runs(desk.cluster.bus).record(desk.run())
    assert record is not None
    assert record.num_rollouts == 9
    assert not [name for name in desk.content() if name.startswith(".")]


@pytest.mark.parametrize(
    ("step", "is_undone"),
    [
        ("before the manifest", False),
        ("after the manifest", False),
        ("before the record", False),
        ("before the tasks", False),
        ("before the manifest", True),
        ("after the manifest", True),
        pytest.param("before the record", True, marks=pytest.mark.nightly),
        pytest.param("before the tasks", True, marks=pytest.mark.nightly),
    ],
)
async def test_a_collection_killed_while_its_rows_change_ends_right_with_the_next_command(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, step: str, is_undone: bool
) -> None:
    desk.write_input([row("a"), row("b")])
    await desk.collect(num_repeats=2)
    desk.write_input([row("c"), row("b")])
    with monkeypatch.context() as patched:
        kill_at(patched, step)
        with pytest.raises((Killed, BaseExceptionGroup)):
            await desk.collect(num_repeats=2)
    if is_undone:
        desk.write_input([row("a"), row("b")])
    progress = await desk.collect(num_repeats=2)
    assert (progress.total, progress.done, progress.before) == (
        4,
        4,
        4 if is_undone and step == "before the manifest" else 2,
    )
    assert set(by_prompt(desk.output)) == {"a" if is_undone else "c", "b"}
    assert keys(desk.output) == keys(desk.files.materialised) == [(task, index) for task in (0, 1) for index in (0, 1)]
    assert not [name for name in desk.content() if name.startswith(".")]


async def test_a_collection_killed_before_it_was_extended_is_resumed_as_it_was(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write_input([row("a")])
    await desk.collect(num_repeats=2)
    before = desk.content()
    with monkeypatch.context() as patched:
        kill_at(patched, "before the manifest")
        with pytest.raises(Killed):
            await desk.collect(num_repeats=3)
    assert desk.content() == before
    progress = await desk.collect(num_repeats=2)
    assert (progress.total, progress.submitted) == (2, 0)


async def test_an_interrupted_run_says_what_is_left(desk: Desk) -> None:
    desk.write_input([row("good"), row("bad", script={"model_fails": 4}), row("x", agent_ref={"name": "adder"})])
    assert (await desk.collect()).failed == 2
    said: list[str] = []
    await desk.collect(report=said.append)
    assert said == [f"resuming run {desk.run()}: 1 of 3 done, 1 failed and will be retried, 1 failed for good"]


async def test_an_output_without_manifest_is_refused_and_left_alone(desk: Desk) -> None:
    desk.write_input([row()])
    desk.output.parent.mkdir()
    desk.output.write_text("precious\n")
    with pytest.raises(UsageError, match=r"cannot be resumed because rollouts_run\.json is not beside it"):
        await desk.collect()
    assert desk.content() == {"rollouts.jsonl": b"precious\n"}


async def test_overwrite_starts_over(desk: Desk) -> None:
    desk.write_input([row("a")])
    await desk.collect()
    first = desk.run()
    desk.write_input([row("b")])
    await desk.collect(overwrite=True, num_repeats=2)
    assert keys(desk.output) == [(0, 0), (0, 1)]
    assert desk.run() != first
    assert await desk.cluster.stored(first) == []


@pytest.mark.parametrize("content", [b"", b"\n{broken\n", b'{"no": "params"}\n'])
async def test_overwrite_with_bad_input_leaves_the_old_run_alone(desk: Desk, content: bytes) -> None:
    desk.write_input([row("a")])
    await desk.collect()
    before = desk.content()
    desk.input.write_bytes(content)
    with pytest.raises((UsageError, RowError)):
        await desk.collect(overwrite=True)
    assert desk.content() == before
    assert len(await desk.cluster.stored(desk.run())) == 1


async def test_files_that_were_removed_are_written_again_from_the_stream(desk: Desk) -> None:
    desk.write_input([row("a"), row("b", script={"model_nonsense": True})])
    await desk.collect()
    output, failures, rows = (path.read_bytes() for path in (desk.output, desk.files.failures, desk.files.materialised))
    for path in (desk.output, desk.files.failures, desk.files.materialised):
        path.unlink()
    calls = desk.calls()
    await desk.collect()
    assert desk.output.read_bytes() == output
    assert desk.files.materialised.read_bytes() == rows
    assert desk.files.failures.read_bytes().startswith(failures)
    assert desk.cluster.calls(desk.run())["0/0"] == 1
    assert calls == 4


async def test_rollouts_that_the_server_has_lost_are_taken_from_the_files(desk: Desk) -> None:
    desk.write_input([row("a"), row("b", script={"model_fails": 3})])
    assert (await desk.collect()).failed == 1
    await streams.delete_run(desk.cluster.js, desk.run())
    progress = await desk.collect()
    assert (progress.before, progress.done) == (1, 2)
    assert keys(desk.output) == [(0, 0), (1, 0)]
    assert desk.cluster.calls(desk.run()) == {"0/0": 1, "1/0": 4}


async def test_a_torn_last_line_is_mended(desk: Desk) -> None:
    desk.write_input([row("a"), row("b")])
    await desk.collect()
    lines = desk.output.read_bytes().splitlines(keepends=True)
    desk.output.write_bytes(lines[0] + lines[1][:40])
    await desk.collect()
    assert keys(desk.output) == [(0, 0), (1, 0)]
    assert desk.calls() == 2


async def test_a_broken_line_among_the_failures_is_named_and_a_blank_one_skipped(desk: Desk) -> None:
    desk.write_input([row("a"), row("b", script={"model_nonsense": True})])
    await desk.collect()
    whole = desk.files.failures.read_bytes()
    desk.files.failures.write_bytes(b"\n" + whole)
    await desk.collect()
    desk.files.failures.write_bytes(b"{broken\n" + whole)
    with pytest.raises(RowError, match=r"rollouts_failures\.jsonl:1: the line is not valid JSON"):
        await desk.collect()


async def test_rows_that_were_cut_or_doubled_can_be_made_again(desk: Desk) -> None:
    desk.write_input([row("a"), row("b")])
    await desk.collect()
    whole = desk.files.materialised.read_bytes()
    desk.files.materialised.write_bytes(whole[:-20])
    with pytest.raises(UsageError, match=r"inputs\.jsonl:2: the line is not valid .*; delete this file, and the same"):
        await desk.collect()
    for rest in (b"", whole[: whole.index(b"\n") + 1], whole + whole):
        desk.files.materialised.write_bytes(rest)
        assert (await desk.collect()).done == 2
        assert desk.files.materialised.read_bytes() == whole
    assert desk.calls() == 2


async def test_an_output_that_readers_would_decompress_is_refused(desk: Desk) -> None:
    desk.write_input([row()])
    desk.output = desk.output.with_name("rollouts.jsonl.gz")
    with pytest.raises(UsageError, match=r"give a name that ends in \.jsonl"):
        await desk.collect()


async def test_no_more_than_the_window_is_in_flight(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write_input([row(str(number), script={"model_s": 0.1}) for number in range(30)])
    collection = desk.collection(window=4)
    seen: list[int] = []

    submit = QueueClient.submit

    async def counted(queue: QueueClient, task: Task, **options: Any) -> None:
        stored = await desk.cluster.stored(task.run)
        seen.append(collection.progress.submitted - len(stored))
        await submit(queue, task, **options)

    monkeypatch.setattr(QueueClient, "submit", counted)
    await collection.run()
    assert len(seen) == 30
    assert max(seen) <= 4


async def test_a_task_that_is_still_queued_is_not_submitted_again(desk: Desk) -> None:
    desk.write_input([row("slow", script={"model_s": 1.0})])
    await desk.collect(agent="asker")
    run = desk.run()
    # As after a kill, and with a server that has forgotten the message ids it saw.
    await streams.delete_run(desk.cluster.js, run)
    desk.output.unlink()
    content = read(desk.files.materialised)[0]
    await desk.cluster.submit(run, "asker", [content])
    await desk.cluster.until_called(run, 2)
    await desk.collect()
    assert desk.cluster.calls(run) == {"0/0": 2}
    assert keys(desk.output) == [(0, 0)]


async def test_a_task_submitted_twice_has_one_outcome_and_one_model_call(desk: Desk, run: str) -> None:
    await desk.cluster.submit(run, "asker", [row("a")])
    await desk.cluster.outcomes(run, 1)
    await desk.cluster.submit(run, "asker", [row("a")])  # within the window for duplicates
    info = await desk.cluster.js.api("STREAM.INFO.TASKS")
    await desk.cluster.submit(run, "asker", [row("a")], is_new=True)
    assert (await desk.cluster.js.api("STREAM.INFO.TASKS"))["state"]["last_seq"] == info["state"]["last_seq"] + 1
    await desk.cluster.until_settled(run)
    assert desk.cluster.calls(run) == {"0/0": 1}
    assert len(await desk.cluster.stored(run)) == 1


@pytest.mark.usefixtures("no_patience")
async def test_an_agent_that_is_not_running_is_named(desk: Desk) -> None:
    desk.write_input([row("a"), row(agent_ref={"name": "nobody"})])
    with pytest.raises(UsageError, match=r"rows\.jsonl:2: no agent named 'nobody', which the row") as raised:
        await desk.collect()
    assert "asker" in str(raised.value).partition("is running; running: ")[2].split(", ")
    assert desk.content() == {}


@pytest.mark.usefixtures("no_patience")
async def test_an_agent_of_the_options_that_is_not_running_is_named_though_rows_name_others(desk: Desk) -> None:
    desk.write_input([row("a", agent_ref={"name": "asker"})])
    with pytest.raises(UsageError, match=r"^--agent: no agent named 'absent' is running; running: "):
        await desk.collect(agent="absent")
    assert desk.content() == {}


@pytest.mark.usefixtures("no_patience")
async def test_an_agent_that_ran_once_but_does_not_now_is_named(desk: Desk) -> None:
    await streams.ensure_agent(desk.cluster.js, "retired")
    desk.write_input([row(agent_ref={"name": "retired"})])
    with pytest.raises(UsageError, match="no agent named 'retired', which the row names in `agent_ref`, is running"):
        await desk.collect()


async def test_a_name_that_cannot_be_an_agent_is_refused(desk: Desk) -> None:
    desk.write_input([row(agent_ref={"name": "a.b >"})])
    with pytest.raises(RowError, match=r"rows\.jsonl:1: agent 'a\.b >' must be"):
        await desk.collect()
    desk.write_input([row("a"), row(agent_ref={"name": "a.b >"})])
    with pytest.raises(RowError, match=r"rows\.jsonl:2: agent 'a\.b >' must be"):
        await desk.collect(strict_rows=True)


BAD_LINES = [
    (b'{"broken', "line"),
    (b'{"no": "params"}', "the row has no prompt: its fields are no"),
    (b'{"responses_create_params": {}, "agent_ref": {"name": "a.b"}}', "agent 'a.b'"),
    (b'{"responses_create_params": {}, "agent_ref": {"name": "\\u0000"}}', "agent"),
    (b'{"responses_create_params": {}, "_ng_task_index": -1}', "`_ng_task_index`"),
    (b"\xff\xfe", "line"),
    (b'{"responses_create_params": {}, "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
]


async def test_rows_that_cannot_be_used_cost_themselves(desk: Desk) -> None:
    desk.write_input([row("a"), row("b")])
    first, last = desk.input.read_bytes().splitlines()
    desk.input.write_bytes(b"\n".join([first, *(bad for bad, _ in BAD_LINES), last]) + b"\n")
    progress = await desk.collect(num_repeats=2)
    assert (progress.done, progress.total, progress.failed, progress.refused) == (4, 4, 0, len(BAD_LINES))
    failures = read(desk.files.failures)
    for line, (failure, (_, message)) in enumerate(zip(failures, BAD_LINES, strict=True), start=2):
        assert failure["_ng_failure_class"] == "invalid_task"
        assert failure["_ng_failure_terminal"] is True
        assert f"rows.jsonl:{line}: " in failure["_ng_failure_message"]
        assert message in failure["_ng_failure_message"]
    # Statistics and a resumed run know it, and write it no second time.
    assert read_statistics(desk.files).profile.snapshot().agents["asker"].failures == {}
    again = await desk.collect(num_repeats=2)
    assert (again.done, again.submitted, again.refused) == (4, 0, len(BAD_LINES))
    assert len(read(desk.files.failures)) == len(BAD_LINES)
    for bad, _ in BAD_LINES:
        desk.input.write_bytes(b"\n".join([first, bad, last]) + b"\n")
        with pytest.raises(RowError, match=r"rows\.jsonl:2: "):
            await desk.collect(num_repeats=2, strict_rows=True, overwrite=True)
        assert len(keys(desk.output)) == 4


async def test_a_row_of_a_table_without_json_form_costs_itself(desk: Desk) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"responses_create_params": json.dumps(row(name)["responses_create_params"])} for name in "abc"]
    bounds = (1.0, float("inf"), 2.0)
    table = [found | {"bound": bound} for found, bound in zip(rows, bounds, strict=True)]
    desk.input = desk.input.with_suffix(".parquet")
    parquet.write_table(pyarrow.Table.from_pylist(table), desk.input)
    sentences: list[str] = []
    progress = await desk.collect(report=sentences.append)
    assert (progress.done, progress.total, progress.refused) == (2, 2, 1)
    problem = f"{desk.input}:2: column bound: contains an infinite number, which has no JSON form"
    assert problem in sentences
    (failure,) = read(desk.files.failures)
    assert failure["_ng_failure_message"] == problem
    with pytest.raises(RowError, match=":2: column bound"):
        await desk.collect(strict_rows=True, overwrite=True)
    parquet.write_table(pyarrow.Table.from_pylist(table[1:2]), desk.input)
    with pytest.raises(RowError, match=":1: column bound"):
        desk.plan(overwrite=True).check()


async def test_a_bad_row_of_a_folder_is_named_with_its_file(desk: Desk) -> None:
    folder = desk.input.parent / "rows"
    folder.mkdir()
    for shard, lines in enumerate(("{broken\n", json.dumps(row("a")), json.dumps(row("b")) + "\n{worse\n[]\n")):
        (folder / f"train-0000{shard}-of-00003.jsonl").write_text(lines)
    desk.input = folder
    with pytest.raises(RowError) as caught:
        await desk.collect(strict_rows=True)
    assert f"{folder / 'train-00002-of-00003.jsonl'}:2: the line is not valid JSON" in str(caught.value)
    assert desk.content() == {}
    assert (await desk.collect()).refused == 3
    places = [line["_ng_failure_message"].split(": ")[0] for line in read(desk.files.failures)]
    names = ("train-00000-of-00003.jsonl:1", "train-00002-of-00003.jsonl:2", "train-00002-of-00003.jsonl:3")
    assert places == [str(folder / name) for name in names]


async def test_a_row_that_no_message_can_hold_costs_itself(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymq.runs.collection.usable_rows.MAX_ROW_BYTES", 2000)
    desk.write_input([row("a"), row("b" * 2000), row("c")])
    progress = await desk.collect()
    assert (progress.done, progress.total, progress.refused) == (2, 2, 1)
    (failure,) = read(desk.files.failures)
    assert "rows.jsonl:2: the row has 2," in failure["_ng_failure_message"]


async def test_an_empty_input_is_refused(desk: Desk) -> None:
    desk.write_input([])
    with pytest.raises(UsageError, match="has no rows"):
        await desk.collect()
    assert desk.content() == {}


async def test_a_missing_input_is_refused(desk: Desk) -> None:
    with pytest.raises(UsageError, match=r"input file .* not found"):
        await desk.collect()


async def test_bad_rows_are_named_by_file_and_line(desk: Desk) -> None:
    desk.input.write_text(json.dumps(row()) + "\n{broken\n" + json.dumps(row()) + '\n{"no": "params"}\n')
    with pytest.raises(RowError) as caught:
        await desk.collect(strict_rows=True)
    assert f"{desk.input}:2:" in str(caught.value)
    assert f"{desk.input}:4:" in str(caught.value)
    assert desk.content() == {}


async def test_input_and_output_must_differ(desk: Desk) -> None:
    desk.write_input([row()])
    desk.output = desk.input
    with pytest.raises(UsageError, match="the same file"):
        await desk.collect()


async def test_the_files_of_a_run_are_not_its_input(desk: Desk) -> None:
    desk.write_input([row(script={"model_nonsense": True})])
    await desk.collect()
    before = desk.content()
    desk.input = desk.files.failures
    with pytest.raises(UsageError, match=r"_failures\.jsonl belongs to the run at the output: choose another"):
        await desk.collect(overwrite=True)
    assert desk.content() == before


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x", "x.jsonl"),
        ("x.jsonl", "x"),
        ("x.jsonl", "x_failures.jsonl"),
        ("x_failures.jsonl", "x.jsonl"),
    ],
)
async def test_files_of_another_run_are_left_alone(desk: Desk, first: str, second: str) -> None:
    desk.write_input([row()])
    desk.output = desk.output.with_name(first)
    await desk.collect()
    before = desk.content()
    desk.output = desk.output.with_name(second)
    for overwrite in (False, True):
        with pytest.raises(UsageError, match=r"belongs to a run with another output than .*: choose another"):
            await desk.collect(overwrite=overwrite)
        assert desk.content() == before


@pytest.mark.parametrize("which", ["input", "output"])
async def test_a_name_that_is_not_utf_8_is_refused(desk: Desk, which: str) -> None:
    setattr(desk, which, desk.input.with_name(os.fsdecode(b"r\xe4.jsonl")))
    desk.write_input([row()])
    with pytest.raises(UsageError, match=r"r\\udce4\.jsonl': the name of the file is not UTF-8"):
        await desk.collect()


async def test_an_output_that_is_a_folder_is_refused(desk: Desk) -> None:
    desk.write_input([row()])
    desk.output.mkdir(parents=True)
    with pytest.raises(UsageError, match="is a folder"):
        await desk.collect()


async def test_two_collections_cannot_write_the_same_files(desk: Desk) -> None:
    desk.write_input([row()])
    for output in (desk.output, desk.output.with_suffix("")):
        with RunFiles(output).locked(), pytest.raises(UsageError, match="another collection is writing"):
            await desk.collect()
    await desk.collect()
    assert keys(desk.output) == [(0, 0)]


async def test_rows_of_several_agents_share_a_collection(desk: Desk) -> None:
    adding = row("add", expected=1, agent_ref={"name": "adder"}, script={"tools": ["add"]})
    desk.write_input([row("a"), adding])
    assert (await desk.collect()).failed == 0
    assert {line["agent_ref"]["name"]: line["reward"] for line in read(desk.output)} == {"asker": 1.0, "adder": 1.0}


async def test_an_outcome_that_nobody_can_read_is_replaced(desk: Desk) -> None:
    desk.write_input([row("slow", script={"model_s": 0.5})])
    await desk.collect()
    run = desk.run()
    await streams.delete_run(desk.cluster.js, run)
    desk.output.unlink()
    await desk.cluster.js.store(subjects.ROLLOUT.of(run, 0, 0), b"\xff nonsense")
    await desk.collect()
    assert keys(desk.output) == [(0, 0)]
    agents = read_statistics(desk.files).profile.snapshot().agents
    assert {name: agent.failed_attempts for name, agent in agents.items()} == {"asker": {"not_storable": 1}}


async def test_a_result_in_the_file_stays_one_although_nobody_can_read_it_in_the_store(desk: Desk) -> None:
    desk.write_input([row("a"), row("b")])
    await desk.collect()
    await desk.cluster.js.store(subjects.ROLLOUT.of(desk.run(), 0, 0), b"\xff nonsense")
    before = desk.content()
    sentences: list[str] = []
    progress = await desk.collect(report=sentences.append)
    assert (progress.done, progress.failed, progress.submitted) == (2, 0, 0)
    assert "is complete: 2 of 2" in sentences[-1]
    assert desk.content() == before


async def test_tasks_that_somebody_removed_are_not_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("collection", "progress"):
        monkeypatch.setattr(f"gymq.runs.collection.{module}.STALLED_AFTER_S", 0.3)
    desk.write_input([row("a"), row("never", agent_ref={"name": "waiter"})])
    collection = desk.collection(rollout_timeout_s=10.0)
    running = asyncio.create_task(collection.run())
    await until(lambda: collection.progress.done == 1)
    await desk.cluster.js.api("STREAM.PURGE.TASKS", {"filter": subjects.TASK.of(desk.run())})
    progress = await running
    assert (progress.done, progress.failed, progress.total) == (1, 0, 2)
    assert "1 rollout left the queue without an outcome" in collection.warnings[0]


async def test_tasks_that_wait_for_room_in_the_server_are_waited_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("collection", "progress"):
        monkeypatch.setattr(f"gymq.runs.collection.{module}.STALLED_AFTER_S", 0.1)
    desk.write_input([row("a"), row("b")])
    collection = desk.collection()
    submit, look = collection._queue.submit, collection._give_up_lost
    has_room = asyncio.Event()
    num_looks = 0

    async def submit_late(task: Task, **options: Any) -> None:
        if task.task_index:
            await has_room.wait()
        await submit(task, **options)

    async def count_looks() -> None:
        nonlocal num_looks
        await look()
        num_looks += 1

    monkeypatch.setattr(collection._queue, "submit", submit_late)
    monkeypatch.setattr(collection, "_give_up_lost", count_looks)
    running = asyncio.create_task(collection.run())
    await until(lambda: num_looks >= 3)
    has_room.set()
    assert (await running).done == 2
    assert collection.warnings == []
    assert keys(desk.output) == [(0, 0), (1, 0)]


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, 1e9, float("nan")])
async def test_a_time_limit_that_no_task_can_have_is_refused(desk: Desk, timeout_s: float) -> None:
    desk.write_input([row()])
    with pytest.raises(UsageError, match="a rollout may take between 0 and"):
        await desk.collect(rollout_timeout_s=timeout_s)
    assert desk.content() == {}


async def test_a_full_disk_is_told_plainly_and_the_next_start_continues(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write_input([row(str(number)) for number in range(20)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr("gymq.data.run_files.BUFFER_BYTES", 4096)
    collection = desk.collection()
    published = collection._publish

    async def publish(*arguments: Any) -> None:
        # From here on the files of this process can grow no further.
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limits[1]))
        await published(*arguments)

    collection._publish = publish  # type: ignore[method-assign, assignment]
    try:
        with pytest.raises(UsageError, match=r"rollouts\.jsonl cannot be written: File too large"):
            await collection.run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (await desk.collect()).done == 20
    assert keys(desk.output) == [(number, 0) for number in range(20)]
    assert desk.calls() == 20


async def test_an_output_that_cannot_be_written_is_refused(desk: Desk) -> None:
    desk.write_input([row()])
    desk.output.parent.write_text("not a folder")
    with pytest.raises(UsageError, match=r"rollouts\.jsonl cannot be written: "):
        await desk.collect()


async def test_a_run_in_which_nothing_succeeds_is_stopped_and_resumed(desk: Desk) -> None:
    desk.write_input([row(f"row {index}", script={"agent": "raise" if index < 40 else ""}) for index in range(60)])
    collection = desk.collection(agent="odd", window=1)
    progress = await collection.run()
    assert collection.stopped == "32 rollouts in a row failed with agent_failed at agent"
    assert (progress.done, progress.failed, progress.submitted) == (0, 32, 32)
    collection = desk.collection(agent="odd", window=1)
    progress = await collection.run()
    assert not collection.stopped
    assert (progress.done, progress.failed, progress.submitted) == (20, 40, 28)


async def test_a_run_that_is_over_anyway_is_not_stopped(desk: Desk) -> None:
    desk.write_input([row(f"row {index}", script={"agent": "raise"}) for index in range(32)])
    collection = desk.collection(agent="odd")
    assert (await collection.run()).failed == 32
    assert not collection.stopped


async def test_a_run_is_stopped_at_its_limit_of_failures(desk: Desk) -> None:
    desk.write_input([row(f"row {index}", script={"agent": "raise"}) for index in range(10)])
    collection = desk.collection(agent="odd", window=1, max_failures=MaxFailures(20, is_percent=True))
    progress = await collection.run()
    assert collection.stopped == "3 rollouts failed, more than --max-failures 20%"
    assert (progress.done, progress.failed, progress.submitted) == (0, 3, 3)
