"""`gymq view`: the viewer of a folder, of a cluster that comes and goes in it, and of a file."""

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gymq.bus import Bus, streams
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.server import EmbeddedServer
from gymq.cluster.server.store import Store
from gymq.ext.viewer import viewer
from gymq.ext.viewer.viewer import Viewer
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Run
from tests.cli.conftest import Command, Finished, entry, row, write_workers
from tests.ext.viewer.conftest import rollout
from tests.support.browser import browser, needs_browser
from tests.support.ports import free_port

LONG_S = 600


class Shown:
    """A viewer that runs, and what it answers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.warned = ""  # what it wrote to standard error, once it has ended

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}api/{path}", timeout=LONG_S) as answer:
            return json.load(answer)

    def runs(self) -> dict[str, int]:
        """The runs, and how many rollouts of each have a reward; none while the viewer changes its server."""
        try:
            listed = [run["overview"] for run in self.get("runs")["runs"]]
            return {run["run"]: run["num_rewarded"] for run in listed}
        except (urllib.error.URLError, ConnectionError):
            return {}

    def until_notice(self, text: str) -> None:
        """Wait until the page says this of the cluster; empty: nothing."""
        give_up = time.monotonic() + LONG_S
        while (notice := self.get("notice")["notice"]) != text and (not text or text not in notice):
            assert time.monotonic() < give_up, notice
            time.sleep(0.1)

    def until_cluster(self, *, is_here: bool) -> None:
        give_up = time.monotonic() + LONG_S
        while self.get("cluster")["is_here"] != is_here:
            assert time.monotonic() < give_up
            time.sleep(0.1)

    def until(self, holds: Callable[[dict[str, int]], bool]) -> dict[str, int]:
        give_up = time.monotonic() + LONG_S
        while not holds(found := self.runs()):
            assert time.monotonic() < give_up, found
            time.sleep(0.1)
        return found


@contextmanager
def viewing(folder: Path, *arguments: object, ended_by: signal.Signals = signal.SIGINT) -> Iterator[Shown]:
    command = [*entry(), "view", "--port", str(free_port("127.0.0.1")), *map(str, arguments)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line)
            if line.startswith("http://"):
                break
        else:
            assert process.stderr is not None
            raise AssertionError((printed, process.stderr.read()))
        shown = Shown(line.strip())
        try:
            yield shown
        finally:
            process.send_signal(ended_by)
            _, shown.warned = process.communicate(timeout=LONG_S)
            assert process.returncode == 0


@contextmanager
def watching(shown: Shown) -> Iterator[list[int]]:
    """Ask for the runs again and again while the block runs, and list the statuses of the answers."""
    statuses: list[int] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(0.05):
            try:
                shown.get("runs")
                statuses.append(200)
            except urllib.error.HTTPError as error:
                statuses.append(error.code)
            except (urllib.error.URLError, ConnectionError):
                statuses.append(0)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield statuses
    finally:
        ended.set()
        asking.join()


@contextmanager
def running_server(folder: Path) -> Iterator[EmbeddedServer]:
    """The server of a cluster without workers."""
    server = EmbeddedServer(folder / ".gymq" / "jetstream")
    asyncio.run(server.start())
    try:
        yield server
    finally:
        asyncio.run(server.stop())


def own_server(folder: Path) -> int:
    """The process of the viewer's own server."""
    record = Store(folder / ".gymq" / "jetstream").read_record()
    return 0 if record is None else record.pid


async def store_run(url: str, run: str) -> None:
    async with await Bus.connect(url, role="operator", name="test") as bus:
        await streams.ensure(bus.js, [])
        await bus.js.store(subjects.RUN.of(run), encode(Run(run=run, created_at=time.time(), num_rollouts=1)))
        assert await OutcomeStore(bus).put(rollout(run, 0), replaces=None, patience_s=30.0)


def collect(folder: Path, output: str, *given: str) -> None:
    done = subprocess.run(
        [*entry(), "collect", "-c", "config.yaml", "--rows", "rows.jsonl", "-o", output, "--num-repeats", "2", *given],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LONG_S,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def workers(tmp_path: Path) -> Path:
    write_workers(tmp_path)
    (tmp_path / "rows.jsonl").write_text(json.dumps(row("first letter", "A")) + "\n")
    return tmp_path


@pytest.mark.nightly
def test_the_runs_stored_in_a_folder_are_shown_and_a_collection_beside_the_viewer_works(workers: Path) -> None:
    collect(workers, "first.jsonl")
    with viewing(workers) as shown:
        assert shown.url.startswith("http://127.0.0.1:")
        shown.until(lambda runs: sorted(runs.values()) == [2])
        collect(workers, "second.jsonl")
        found = shown.until(lambda runs: sorted(runs.values()) == [2, 2])
        assert {run.rpartition("-")[0] for run in found} == {"first", "second"}
    collect(workers, "third.jsonl")


@pytest.mark.nightly
def test_the_configuration_of_a_run_is_shown_as_it_was_given_without_its_secrets(
    workers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-proj-0123456789abcdef"
    monkeypatch.setenv("GYMQ_MODEL_API_KEY", secret)
    collect(workers, "first.jsonl", f"+responses_create_params.user=uses {secret}")
    for arguments in ([], ["first.jsonl"]):
        with viewing(workers, *arguments) as shown:
            (run,) = shown.until(lambda runs: sorted(runs.values()) == [2])
            found = shown.get(f"runs/{run}/configuration")
        assert "num_repeats: 2" in found["options"]
        assert (found["values"]["input"], found["values"]["responses_create_params.user"]) == (
            "rows.jsonl",
            "uses ****",
        )
        assert "letters_agent:" in found["workers"]
        assert secret not in json.dumps(found)


@pytest.fixture(scope="module")
def beside(finished_run: Finished) -> Iterator[Shown]:
    """A viewer in the folder of a cluster."""
    with viewing(finished_run.folder) as shown:
        yield shown


def test_the_cluster_that_runs_in_a_folder_is_shown(beside: Shown, cluster: Finished) -> None:
    beside.until(lambda runs: runs.get(cluster.run) == 8)
    deadline = time.monotonic() + LONG_S
    kinds: set[str] = set()
    while kinds != {"agents", "models", "resources"}:  # on a busy machine they may answer after one look
        found = beside.get("cluster")
        assert found["is_here"]
        kinds = {worker["kind"] for worker in found["workers"]}
        assert time.monotonic() < deadline, kinds


@pytest.mark.nightly
@needs_browser
async def test_ten_collections_under_an_open_page_appear_in_it(workers: Path) -> None:
    with viewing(workers) as shown, watching(shown) as answers:
        async with browser() as page:
            await page.open(shown.url)
            await page.shows("no runs yet")
            for number in range(10):
                await asyncio.to_thread(collect, workers, f"number{number}.jsonl")
                await page.shows(f"number{number}-")
            assert await page.value("document.getElementById('notice').hidden")
    assert set(answers) == {200}


def test_clusters_start_and_stop_under_an_open_page(tmp_path: Path) -> None:
    with viewing(tmp_path) as shown, watching(shown) as answers:
        assert shown.get("runs")["runs"] == []
        assert list(tmp_path.iterdir()) == []
        for number in range(4):
            with running_server(tmp_path) as server:
                asyncio.run(store_run(server.url, f"run-{number}"))
                shown.until(lambda runs: len(runs) == number + 1)  # noqa: B023
        shown.until_cluster(is_here=False)
        assert set(shown.runs()) == {f"run-{number}" for number in range(4)}
    assert set(answers) == {200}


def test_a_cluster_that_freezes_and_crashes_is_said_in_the_page_and_its_runs_are_still_read(tmp_path: Path) -> None:
    with viewing(tmp_path) as shown, watching(shown) as answers, running_server(tmp_path) as server:
        asyncio.run(store_run(server.url, "first"))
        shown.until_cluster(is_here=True)
        shown.until(lambda runs: "first" in runs)
        os.kill(server.pid, signal.SIGSTOP)
        shown.until_notice("the NATS server of this folder has not answered for")
        assert (shown.get("runs/first")["overview"]["run"], shown.get("site")["may_change"]) == ("first", False)
        assert shown.get("rollouts/first/0/0")["reward"] == 1.0
        os.kill(server.pid, signal.SIGCONT)
        shown.until_notice("")
        shown.until_cluster(is_here=True)
        asyncio.run(store_run(server.url, "second"))
        shown.until(lambda runs: "second" in runs)
        os.kill(server.pid, signal.SIGKILL)
        shown.until_cluster(is_here=False)
        assert {"first", "second"} <= shown.runs().keys()
        assert shown.get("site")["may_change"]
        ours = own_server(tmp_path)
        assert ours != server.pid
        os.kill(ours, signal.SIGKILL)
        while own_server(tmp_path) == ours:
            assert {"first", "second"} <= shown.runs().keys()
    assert set(answers) == {200}


def test_a_store_that_cannot_be_read_is_said_in_the_page(tmp_path: Path) -> None:
    (tmp_path / ".gymq" / "jetstream").mkdir(parents=True)
    (tmp_path / ".gymq" / "jetstream" / "password").write_text("not one")
    with viewing(tmp_path) as shown:
        shown.until_notice("password is damaged: delete it")
        (tmp_path / ".gymq" / "jetstream" / "password").unlink()
        shown.until_notice("")
        assert shown.get("runs")["runs"] == []


def test_only_reading_is_possible(beside: Shown) -> None:
    root = beside.url.removesuffix("ui/")
    for path in ("run", "v1/responses", "verify", "global_config_dict_yaml"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(root + path, data=b"{}", method="POST"))
        assert refused.value.code == 404
    foreign = urllib.request.Request(f"{beside.url}api/runs", headers={"Origin": "http://elsewhere.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(foreign)
    assert refused.value.code == 403


def test_a_file_of_rollouts_is_shown_with_its_failures(cluster: Finished, tmp_path: Path) -> None:
    with viewing(tmp_path, cluster.file()) as shown:
        shown.until(lambda runs: runs == {cluster.run: 8})
        (listed,) = shown.get("runs")["runs"]
        assert (listed["overview"]["created_at"], listed["duration_s"]) == (0.0, None)  # the file does not say
        assert not shown.get("cluster")["is_here"]
        view = shown.get(f"runs/{cluster.run}")
        assert view["overview"]["failures"] == {"judge_failed": 4}
        assert view["overview"]["num_rollouts"] == 12
        right = shown.get(f"rollouts/{cluster.run}/0/0")
        assert (right["reward"], right["agent"]) == (1.0, "letters_agent")
        assert right["verdict"] == {"extracted_answer": "A", "length": 1}
        assert right["row"]["answer"] == "A"
        assert shown.get(f"rollouts/{cluster.run}/2/1")["failure"]["message"] == "the judge is asleep"
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_tool_is_shown_without_its_broken_lines(tmp_path: Path) -> None:
    def line(question: str, reward: Any) -> str:
        response = {"output": [{"type": "message", "role": "assistant", "content": "B"}]}
        return json.dumps({"responses_create_params": {"input": question}, "response": response, "reward": reward})

    lines = [line("A or B?", 1), line("A or B?", 0.0), line("C or D?", 0.5), "{", line("E?", "high"), '{"reward": 1}']
    lines += [line("F?", 1).replace('[{"type"', '[5, {"type"'), line("G?", 1).replace('"B"', "[5]")]
    (tmp_path / "theirs of May.jsonl").write_text("\n".join(lines))
    with viewing(tmp_path, "theirs of May.jsonl") as shown:
        shown.until(lambda runs: runs == {"theirs-of-May": 3})
        rewards = [shown.get(f"rollouts/theirs-of-May/{at}")["reward"] for at in ("0/0", "0/1", "1/0")]
        assert rewards == [1.0, 0.0, 0.5]
        assert len(shown.get("runs/theirs-of-May/rollouts")["rows"]) == 3
    assert "theirs of May.jsonl:4: the line is not valid JSON" in shown.warned
    assert "theirs of May.jsonl:5: the line has no number `reward`" in shown.warned
    assert "theirs of May.jsonl:6: the line has no object `response`" in shown.warned
    assert "theirs of May.jsonl:7: `response.output` must be a list of objects" in shown.warned
    assert "theirs of May.jsonl:8: `response.output[0].content` must be a text or a list of objects" in shown.warned


@pytest.mark.usefixtures("sighup_by_default")
def test_nothing_is_left_of_a_file_when_the_terminal_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "one.jsonl").write_text('{"response": {"output": []}, "reward": 1}')
    with viewing(tmp_path, "one.jsonl", ended_by=signal.SIGHUP):
        assert len(list(tmp_path.glob("gymq-files-*"))) == 1
    assert list(tmp_path.glob("gymq-files-*")) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "file not found"),
        ("", "no rollouts in it"),
        ('{"question": "A?"}\n', "rollouts.jsonl:1: the line has no number `reward`"),
    ],
)
def test_a_file_without_rollouts_is_refused(gymq: Command, here: Path, text: str | None, problem: str) -> None:
    if text is not None:
        (here / "rollouts.jsonl").write_text(text)
    called = gymq("view", "rollouts.jsonl")
    assert called.status == 2
    assert problem in called.err


def test_a_port_in_use_is_refused_in_one_sentence(gymq: Command, beside: Shown, cluster: Finished) -> None:
    port = beside.url.split(":")[2].removesuffix("/ui/")
    called = gymq("view", "--port", port)
    assert called.status == 2
    assert f"127.0.0.1:{port}: cannot listen" in called.err


async def test_without_a_port_the_next_one_that_is_free_is_taken(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port("127.0.0.1")
    monkeypatch.setattr(viewer, "VIEWER_PORT", port)
    async with Viewer(bus, "127.0.0.1") as first, Viewer(bus, "127.0.0.1") as second:
        assert port <= first.port < second.port


def test_a_file_is_exported_as_a_folder_that_needs_no_server(gymq: Command, tmp_path: Path) -> None:
    line = {"responses_create_params": {"input": "2 + 2?"}, "response": {"output": []}, "reward": 1.0}
    file, folder = tmp_path / "other.jsonl", tmp_path / "shared"
    file.write_text(json.dumps(line) + "\n")
    assert gymq("view", file, "--export", folder).status == 0
    assert {one.name for one in folder.iterdir()} == {"index.html", "viewer.js", "style.css", "icon.svg", "data"}
    assert (folder / "data" / "rollout-0-0-0.js").is_file()
    assert gymq("view", file, "--export", folder).status == 0
    refused = gymq("view", file, "--export", tmp_path)
    assert refused.status == 2
    assert "is not empty" in refused.err
    assert "needs --export" in gymq("view", file, "--run", "x").err
