"""From a data set to files, against a running cluster."""

import asyncio
import json
import resource
import threading
from pathlib import Path
from typing import Any

import pytest

from gymq import streams, subjects
from gymq.bus import Bus
from gymq.collect import CollectError, Collection, CollectOptions, Progress
from gymq.materialise import MaterialiseOptions
from gymq.messages import Task
from gymq.resume import Resume
from gymq.rows import RowError
from gymq.run_files import RunFileError, RunFiles
from gymq.run_profile import profile_of_files
from gymq.tasks import submit

from .lab import Lab, row, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

Rows = list[dict[str, Any]]


class Desk:
    """One data set and the files of its run."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.input = folder / "rows.jsonl"
        self.output = folder / "out" / "rollouts.jsonl"
        self.files = RunFiles(self.output)

    def write_input(self, rows: Rows) -> None:
        self.input.write_text("".join(json.dumps(content) + "\n" for content in rows))

    def collection(self, *, num_repeats: int = 1, agent: str | None = "asker", **options: Any) -> Collection:
        materialise = MaterialiseOptions(agent_name=agent, num_repeats=num_repeats)
        return Collection(self.lab.bus, CollectOptions(self.input, self.output, materialise, **options))

    async def collect(self, **options: Any) -> Progress:
        return await self.collection(**options).run()

    def run(self) -> str:
        manifest = self.files.read_manifest()
        assert manifest is not None
        return manifest.run

    def calls(self) -> int:
        return self.lab.calls(self.run()).total()

    def content(self) -> dict[str, bytes]:
        """Every file there is, by name."""
        folder = self.output.parent
        return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


@pytest.fixture
def desk(lab: Lab, tmp_path: Path) -> Desk:
    return Desk(lab, tmp_path)


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

    def read_files(*sources: Any) -> Resume:
        reader_threads.append(threading.get_ident())
        return Resume(*sources)

    monkeypatch.setattr("gymq.collect.Resume", read_files)
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
    assert "no Responses object" in model["_ng_failure_message"]
    assert "reward" not in model
    assert "response" not in model
    assert verifier["_ng_failure_class"] == "verifier_failed"
    assert verifier["response"]["output"][0]["content"][0]["text"] == "done"
    assert "reward" not in verifier


async def test_what_failed_is_tried_again_at_the_next_start_and_ends_in_the_output_once(desk: Desk) -> None:
    desk.write_input([row("plain"), row("fails", script={"model_fails": 4})])
    assert (await desk.collect()).failed == 1
    assert (await desk.collect()).failed == 0
    assert (await desk.collect()).failed == 0
    assert keys(desk.output) == [(0, 0), (1, 0)]
    assert desk.calls() == 1 + 5
    assert len(await desk.lab.stored(desk.run())) == 2


async def test_what_failed_for_good_is_not_tried_again(desk: Desk) -> None:
    desk.write_input([row("without `expected`", agent_ref={"name": "adder"})])
    assert (await desk.collect()).failed == 1
    failed = read(desk.files.failures)
    assert failed[0]["_ng_failure_terminal"] is True
    assert (await desk.collect()).failed == 1
    assert read(desk.files.failures) == failed


async def test_a_finished_collection_asks_nothing_more(desk: Desk) -> None:
    desk.write_input([row()])
    await desk.collect(num_repeats=5)
    before = desk.content()
    progress = await desk.collect(num_repeats=5)
    assert (progress.before, progress.done, progress.submitted) == (5, 5, 0)
    assert desk.calls() == 5
    assert desk.content() == before


@pytest.mark.parametrize("change", ["input", "num_repeats", "config"])
async def test_changed_input_settings_or_configuration_are_refused_and_nothing_is_touched(
    desk: Desk, change: str
) -> None:
    desk.write_input([row("a")])
    await desk.collect()
    before = desk.content()
    options: dict[str, Any] = {}
    match change:
        case "input":
            desk.write_input([row("b")])
        case "num_repeats":
            options["num_repeats"] = 2
        case "config":
            options["config_digest"] = "another"
    with pytest.raises(CollectError, match=f"{desk.run()}.*changed since: choose another output, or say --overwrite"):
        await desk.collect(**options)
    assert desk.content() == before


async def test_an_output_without_manifest_is_refused_and_left_alone(desk: Desk) -> None:
    desk.write_input([row()])
    desk.output.parent.mkdir()
    desk.output.write_text("precious\n")
    with pytest.raises(CollectError, match=r"exists without rollouts_run\.json"):
        await desk.collect()
    assert desk.content() == {"rollouts.jsonl": b"precious\n"}


async def test_overwrite_starts_anew(desk: Desk) -> None:
    desk.write_input([row("a")])
    await desk.collect()
    first = desk.run()
    desk.write_input([row("b")])
    await desk.collect(overwrite=True, num_repeats=2)
    assert keys(desk.output) == [(0, 0), (0, 1)]
    assert desk.run() != first
    assert await desk.lab.stored(first) == []


@pytest.mark.parametrize("content", [b"", b"\n{broken\n", b'{"no": "params"}\n'])
async def test_overwrite_with_bad_input_leaves_the_old_run_alone(desk: Desk, content: bytes) -> None:
    desk.write_input([row("a")])
    await desk.collect()
    before = desk.content()
    desk.input.write_bytes(content)
    with pytest.raises((CollectError, RowError)):
        await desk.collect(overwrite=True)
    assert desk.content() == before
    assert len(await desk.lab.stored(desk.run())) == 1


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
    assert desk.lab.calls(desk.run())["0/0"] == 1
    assert calls == 4


async def test_rollouts_that_the_server_has_lost_are_taken_from_the_files(desk: Desk) -> None:
    desk.write_input([row("a"), row("b", script={"model_fails": 3})])
    assert (await desk.collect()).failed == 1
    await streams.delete_run(desk.lab.js, desk.run())
    progress = await desk.collect()
    assert (progress.before, progress.done) == (1, 2)
    assert keys(desk.output) == [(0, 0), (1, 0)]
    assert desk.lab.calls(desk.run()) == {"0/0": 1, "1/0": 4}


async def test_a_torn_last_line_is_mended(desk: Desk) -> None:
    desk.write_input([row("a"), row("b")])
    await desk.collect()
    lines = desk.output.read_bytes().splitlines(keepends=True)
    desk.output.write_bytes(lines[0] + lines[1][:40])
    await desk.collect()
    assert keys(desk.output) == [(0, 0), (1, 0)]
    assert desk.calls() == 2


async def test_no_more_than_the_window_is_in_flight(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write_input([row(str(number), script={"model_s": 0.1}) for number in range(30)])
    collection = desk.collection(window=4)
    seen: list[int] = []

    async def counted(bus: Bus, task: Task, **options: Any) -> None:
        stored = await desk.lab.stored(task.run)
        seen.append(collection.progress.submitted - len(stored))
        await submit(bus, task, **options)

    monkeypatch.setattr("gymq.collect.submit", counted)
    await collection.run()
    assert len(seen) == 30
    assert max(seen) <= 4


async def test_a_task_that_is_still_queued_is_not_submitted_again(desk: Desk) -> None:
    desk.write_input([row("slow", script={"model_s": 1.0})])
    await desk.collect(agent="asker")
    run = desk.run()
    # As after a kill, and with a server that has forgotten the message ids it saw.
    await streams.delete_run(desk.lab.js, run)
    desk.output.unlink()
    content = read(desk.files.materialised)[0]
    await desk.lab.submit(run, "asker", [content])
    await desk.lab.until_called(run, 2)
    await desk.collect()
    assert desk.lab.calls(run) == {"0/0": 2}
    assert keys(desk.output) == [(0, 0)]


async def test_a_task_submitted_twice_has_one_outcome_and_one_model_call(desk: Desk, run: str) -> None:
    await desk.lab.submit(run, "asker", [row("a")])
    await desk.lab.outcomes(run, 1)
    await desk.lab.submit(run, "asker", [row("a")])  # within the window for duplicates
    info = await desk.lab.js.api("STREAM.INFO.TASKS")
    await desk.lab.submit(run, "asker", [row("a")], anew=True)
    assert (await desk.lab.js.api("STREAM.INFO.TASKS"))["state"]["last_seq"] == info["state"]["last_seq"] + 1
    await desk.lab.until_settled(run)
    assert desk.lab.calls(run) == {"0/0": 1}
    assert len(await desk.lab.stored(run)) == 1


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that are being started again are not waited for."""
    monkeypatch.setattr("gymq.discovery.RUNNING_PATIENCE_S", 0.0)


@pytest.mark.usefixtures("no_patience")
async def test_an_agent_that_is_not_running_is_named(desk: Desk) -> None:
    desk.write_input([row("a"), row(agent_ref={"name": "nobody"})])
    with pytest.raises(CollectError, match=r"rows\.jsonl:2: no agent named 'nobody' is running"):
        await desk.collect()
    assert desk.content() == {}


@pytest.mark.usefixtures("no_patience")
async def test_an_agent_that_ran_once_but_does_not_now_is_named(desk: Desk) -> None:
    await streams.ensure_agent(desk.lab.js, "retired")
    desk.write_input([row(agent_ref={"name": "retired"})])
    with pytest.raises(CollectError, match="no agent named 'retired' is running"):
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
    (b'{"no": "params"}', "`responses_create_params`"),
    (b'{"responses_create_params": {}, "agent_ref": {"name": "a.b"}}', "agent 'a.b'"),
    (b'{"responses_create_params": {}, "agent_ref": {"name": "\\u0000"}}', "agent"),
    (b'{"responses_create_params": {}, "_ng_task_index": -1}', "`_ng_task_index`"),
    (b"\xff\xfe", "line"),
]


@pytest.mark.parametrize(("bad", "told"), BAD_LINES)
async def test_a_row_that_cannot_be_used_costs_itself(desk: Desk, bad: bytes, told: str) -> None:
    good = [row("a"), row("b")]
    desk.write_input(good)
    lines = desk.input.read_bytes().splitlines()
    desk.input.write_bytes(b"\n".join([lines[0], bad, lines[1]]) + b"\n")
    progress = await desk.collect(num_repeats=2)
    assert (progress.done, progress.total, progress.failed, progress.refused) == (4, 4, 0, 1)
    (failure,) = map(json.loads, desk.files.failures.read_text().splitlines())
    assert failure["_ng_failure_class"] == "invalid_task"
    assert failure["_ng_failure_terminal"] is True
    assert "rows.jsonl:2: " in failure["_ng_failure_message"]
    assert told in failure["_ng_failure_message"]
    # Statistics and a resumed run know it, and write it no second time.
    assert profile_of_files(desk.files).snapshot().agents["asker"].failures == {}
    again = await desk.collect(num_repeats=2)
    assert (again.done, again.submitted, again.refused) == (4, 0, 1)
    assert len(desk.files.failures.read_text().splitlines()) == 1
    with pytest.raises(RowError, match=r"rows\.jsonl:2: "):
        await desk.collect(num_repeats=2, strict_rows=True, overwrite=True)
    assert len(keys(desk.output)) == 4


async def test_an_empty_input_is_refused(desk: Desk) -> None:
    desk.write_input([])
    with pytest.raises(CollectError, match="has no rows"):
        await desk.collect()
    assert desk.content() == {}


async def test_a_missing_input_is_refused(desk: Desk) -> None:
    with pytest.raises(CollectError, match="there is no input file"):
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
    with pytest.raises(CollectError, match="the same file"):
        await desk.collect()


async def test_an_output_that_is_a_folder_is_refused(desk: Desk) -> None:
    desk.write_input([row()])
    desk.output.mkdir(parents=True)
    with pytest.raises(CollectError, match="is a folder"):
        await desk.collect()


async def test_two_collections_cannot_write_the_same_files(desk: Desk) -> None:
    desk.write_input([row()])
    with desk.files.held(), pytest.raises(RunFileError, match="another collection is writing"):
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
    await streams.delete_run(desk.lab.js, run)
    desk.output.unlink()
    await desk.lab.js.store(subjects.rollout(run, 0, 0), b"\xff nonsense")
    await desk.collect()
    assert keys(desk.output) == [(0, 0)]


async def test_tasks_that_somebody_removed_are_not_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymq.collect.STALLED_AFTER_S", 0.3)
    desk.write_input([row("a"), row("never", agent_ref={"name": "waiter"})])
    collection = desk.collection(rollout_timeout_s=10.0)
    running = asyncio.create_task(collection.run())
    await until(lambda: collection.progress.done == 1)
    await desk.lab.js.api("STREAM.PURGE.TASKS", {"filter": subjects.tasks_of_run(desk.run())})
    progress = await running
    assert (progress.done, progress.failed) == (1, 1)
    assert "1 rollouts left the queue without an outcome" in collection.warnings[0]


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, 1e9, float("nan")])
async def test_a_time_limit_that_no_task_can_have_is_refused(desk: Desk, timeout_s: float) -> None:
    desk.write_input([row()])
    with pytest.raises(CollectError, match="a rollout may take between 0 and"):
        await desk.collect(rollout_timeout_s=timeout_s)
    assert desk.content() == {}


async def test_a_full_disk_is_told_plainly_and_the_next_start_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write_input([row(str(number)) for number in range(20)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr("gymq.run_files.BUFFER_BYTES", 4096)
    collection = desk.collection()
    published = collection._publish

    async def publish(*arguments: Any) -> None:
        # From here on the files of this process can grow no further.
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limits[1]))
        await published(*arguments)

    collection._publish = publish  # type: ignore[method-assign]
    try:
        with pytest.raises(RunFileError, match=r"rollouts\.jsonl cannot be written: File too large"):
            await collection.run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (await desk.collect()).done == 20
    assert keys(desk.output) == [(number, 0) for number in range(20)]
    assert desk.calls() == 20


async def test_an_output_that_cannot_be_written_is_refused(desk: Desk) -> None:
    desk.write_input([row()])
    desk.output.parent.write_text("not a folder")
    with pytest.raises(RunFileError, match=r"rollouts\.jsonl cannot be written: "):
        await desk.collect()
