"""`gymq up` and the processes it starts: they come back when they die, and they are gone when it is gone."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from gymq.cluster import launch
from gymq.cluster.process_spec import ProcessSpec
from gymq.cluster.server import find_running
from gymq.errors import UsageError
from gymq.processes import keeping
from gymq.protocol.instances import Instance
from tests.support.waiting import DEADLINE_S, until

from .running_cluster import WORKERS, RunningCluster, row

pytestmark = pytest.mark.asyncio(loop_scope="session")

FORK_SERVER = "gymq.cluster.forkserver"


def configuration(folder: Path, resources: str = "grader.py", **resources_options: Any) -> dict[str, Any]:
    """A policy, an environment and an agent."""
    return {
        "policy": {
            "responses_api_models": {
                str(WORKERS / "scripted_model.py"): {"entrypoint": "-", "calls": str(folder / "calls")}
            }
        },
        "env": {
            "resources_servers": {
                str(WORKERS / resources): {"entrypoint": "-", "domain": "other", **resources_options},
            }
        },
        "agent": {
            "responses_api_agents": {
                "simple_agent": {
                    "entrypoint": "-",
                    "model_server": {"type": "responses_api_models", "name": "policy"},
                    "resources_server": {"type": "resources_servers", "name": "env"},
                }
            }
        },
    }


class Place:
    """A folder in which `gymq` commands are given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[asyncio.subprocess.Process] = []
        folder.mkdir()
        self.configure(configuration(folder))

    def configure(self, content: dict[str, Any]) -> None:
        (self.folder / "config.yaml").write_text(json.dumps(content))

    async def gymq(self, *arguments: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-c",
            "from gymq.cli import main; main()",
            *arguments,
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.started.append(process)
        return process

    async def up(self) -> asyncio.subprocess.Process:
        """A running cluster."""
        process = await self.gymq("up", "--config", "config.yaml")
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        if "workers in" not in line:
            _, err = await process.communicate()
            raise AssertionError(f"{line}{err.decode()}")
        return process

    async def refused(self, *arguments: str) -> str:
        """What a command says that is refused."""
        process = await self.gymq(*arguments)
        _, err = await process.communicate()
        assert process.returncode == 2, err.decode()
        return err.decode()

    async def start_collect(
        self, *arguments: str, rows: list[dict[str, Any]] | None = None
    ) -> asyncio.subprocess.Process:
        content = rows or [row(str(number)) for number in range(5)]
        (self.folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in content))
        return await self.gymq("collect", "--rows", "rows.jsonl", "-o", "out.jsonl", "--json", *arguments)

    async def collect(self, *arguments: str) -> dict[str, Any]:
        """The summary of a collection that succeeds."""
        process = await self.start_collect(*(arguments or ("--config", "config.yaml")))
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        summary: dict[str, Any] = json.loads(out)
        return summary


@contextlib.asynccontextmanager
async def places(parent: Path) -> AsyncIterator[Callable[[str], Place]]:
    """Makes folders, and ends what runs in them in the end."""
    made: list[Place] = []

    def make(name: str) -> Place:
        made.append(Place(parent / name))
        return made[-1]

    yield make
    for process in (process for place in made for process in place.started if process.returncode is None):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest_asyncio.fixture(loop_scope="session")
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with places(tmp_path) as make:
        yield make("place")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """A place with a cluster that no test stops."""
    async with places(tmp_path_factory.mktemp("launch")) as make:
        made = make("running")
        await made.up()
        yield made


def living_in(folder: Path) -> list[psutil.Process]:
    """Processes that were started for a folder, wherever they were started from."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and process.cwd().startswith(str(folder)):
                found.append(process)
    return found


async def nothing_lives_in(folder: Path) -> None:
    """The kernel ends a fork server when its parent ends, which takes a moment."""
    await until(lambda: not living_in(folder), every_s=0.1)


def busy_in(folder: Path) -> list[psutil.Process]:
    """Those that have computed for a while in a process of a pool."""
    return [process for process in living_in(folder) if _computes(process)]


def _computes(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "multiprocessing.forkserver" in str(process.cmdline()) and process.cpu_times().user > 1.0
    return False


async def test_a_killed_worker_process_comes_back(cluster: RunningCluster, run: str) -> None:
    process = cluster.child("models").process
    restarts = cluster.child("models").restarts
    cluster.kill("models")
    await cluster.until_restarted("models", restarts)
    assert cluster.child("models").process is not process
    await cluster.submit(run, "asker", [row()])
    assert len(await cluster.outcomes(run, 1)) == 1


async def test_workers_are_forked_again_when_the_process_that_forks_them_is_killed(
    cluster: RunningCluster, run: str
) -> None:
    processes = {child.name: child.process for child in cluster.children}
    parents = {psutil.Process(process.pid).ppid() for process in processes.values() if process is not None}
    assert len(parents) == 1
    restarts = {child.name: child.restarts for child in cluster.children}
    os.kill(parents.pop(), signal.SIGKILL)
    for name, before in restarts.items():
        await cluster.until_restarted(name, before)
    assert {process.returncode for process in processes.values() if process is not None} == {-signal.SIGKILL}
    await cluster.submit(run, "asker", [row()])
    assert len(await cluster.outcomes(run, 1)) == 1


async def test_told_to_stop_it_stops_everything(place: Place) -> None:
    process = await place.up()
    assert len(living_in(place.folder)) >= 6  # itself, the server, three kinds of workers, the services
    process.terminate()
    out, err = await process.communicate()
    assert process.returncode == 0
    assert b"stopping" in out
    assert b"Traceback" not in err
    await nothing_lives_in(place.folder)


async def test_killed_it_leaves_nothing_behind_not_even_what_is_busy_or_frozen(place: Place) -> None:
    place.configure(configuration(place.folder, "hanging.py"))
    process = await place.up()
    await place.start_collect("--config", "config.yaml", rows=[row()])
    await until(lambda: busy_in(place.folder), every_s=0.1)
    [fork_server] = [child for child in psutil.Process(process.pid).children() if FORK_SERVER in child.cmdline()]
    fork_server.children()[0].suspend()
    for started in place.started:
        started.kill()
    await nothing_lives_in(place.folder)


async def test_interrupted_while_it_starts_it_stops(place: Place) -> None:
    (place.folder / "slow.py").write_text(
        "import asyncio, gymq\n"
        "class Slow(gymq.Resources[gymq.Row]):\n"
        "    async def start(self):\n"
        "        open('starting', 'w').close()\n"
        "        await asyncio.sleep(3600)\n"
        "    async def verify(self, request):\n"
        "        return gymq.Verdict(1.0)\n"
    )
    place.configure(configuration(place.folder, str(place.folder / "slow.py")))
    process = await place.gymq("up", "--config", "config.yaml")
    await until((place.folder / "starting").exists)
    process.send_signal(signal.SIGINT)
    await process.wait()
    await nothing_lives_in(place.folder)


async def test_terminated_while_it_installs_packages_it_stops(place: Place) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await answered.wait()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        worker = place.folder / "worker.py"
        worker.write_text(
            "import gymq\n"
            "class Env(gymq.Resources[gymq.Row]):\n"
            "    async def verify(self, request):\n"
            "        return gymq.Verdict(1.0)\n"
        )
        (place.folder / "requirements.txt").write_text(f"http://127.0.0.1:{port}/tidbit-1.0-py3-none-any.whl\n")
        place.configure(configuration(place.folder, str(worker), isolated=True))
        process = await place.gymq("up", "--config", "config.yaml")
        starting = asyncio.create_task(process.communicate())
        async with asyncio.timeout(DEADLINE_S):
            await asked.wait()
            process.terminate()
            await starting
        await nothing_lives_in(place.folder)
        answered.set()


@pytest.mark.nightly
async def test_two_clusters_run_side_by_side(running: Place, place: Place) -> None:
    await place.up()
    summaries = await asyncio.gather(running.collect(), place.collect())
    assert [summary["done"] for summary in summaries] == [5, 5]
    for folder, summary in zip((running.folder, place.folder), summaries, strict=True):
        calls = (folder / "calls").read_text().splitlines()
        assert sum(call.startswith(summary["run"]) for call in calls) == 5


async def test_a_second_cluster_in_the_same_folder_is_refused(running: Place) -> None:
    said = await running.refused("up", "--config", "config.yaml")
    assert f"is in use by process {running.started[0].pid}" in said
    assert said.count("\n") == 1


async def test_a_collection_joins_the_cluster_of_its_folder_without_any_configuration(running: Place) -> None:
    assert (await running.collect("--agent", "agent", "--overwrite"))["done"] == 5


async def test_a_collection_brings_a_cluster_of_its_own_and_takes_it_away(place: Place) -> None:
    assert (await place.collect())["done"] == 5
    await nothing_lives_in(place.folder)


async def test_a_collection_joins_a_cluster_by_its_url_without_any_configuration(
    place: Place, cluster: RunningCluster
) -> None:
    summary = await place.collect("--nats", cluster.url, "--agent", "asker")
    assert summary["done"] == 5
    assert cluster.calls(summary["run"]).total() == 5


async def test_a_collection_that_was_killed_with_its_cluster_continues_at_once(place: Place) -> None:
    rows = [row(str(number), script={"model_s": 1.0 if number % 2 else 0.0}) for number in range(20)]
    process = await place.start_collect("--config", "config.yaml", rows=rows)
    output = place.folder / "out.jsonl"
    await until(lambda: output.exists() and output.read_text().count("\n") >= 10)
    for living in living_in(place.folder):
        with contextlib.suppress(psutil.NoSuchProcess):  # the server ends by itself
            living.kill()
    await process.wait()
    await nothing_lives_in(place.folder)
    process = await place.start_collect("--config", "config.yaml", rows=rows)
    out, err = await process.communicate()
    assert json.loads(out)["done"] == 20, err.decode()
    indices = [json.loads(line)["_ng_task_index"] for line in output.read_text().splitlines()]
    assert sorted(indices) == list(range(20))
    calls = (place.folder / "calls").read_text().splitlines()
    assert len(calls) <= 30  # only what was in flight is asked for again
    assert len(set(calls)) == 20


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "bad option": ("", {"no_such_option": 1}, "env: no option no_such_option"),
    "missing file": ("missing", {}, "not found"),
    "syntax error": ("class Env(", {}, "cannot be loaded: SyntaxError"),
    "raises in its constructor": (
        "def __init__(self, *a, **k):\n        raise OSError('no\\nlicence')",
        {},
        "env cannot be created: OSError: no licence",
    ),
    "raises at its start": (
        "async def start(self):\n        raise OSError('no\\ndata')",
        {},
        "env cannot start: OSError: no data ({file}:4)",
    ),
    "refuses an option at its start": (
        "async def start(self):\n        raise gymq.OptionsError('env: pass_env: KEY is not set here')",
        {},
        "env cannot start: pass_env: KEY is not set here",
    ),
    "exits at its start": (
        "async def start(self):\n        raise SystemExit(3)",
        {},
        "env cannot start: SystemExit: 3",
    ),
    "dies at its start": (
        "async def start(self):\n        import os\n        os._exit(3)",
        {},
        "it did not become ready; see",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] if name != "raises at its start" else []) for name in WRONG]
)
async def test_a_worker_that_cannot_start_is_named_in_one_sentence(place: Place, name: str) -> None:
    text, options, said = WRONG[name]
    file = place.folder / "env.py"
    if text and text != "missing":
        verify = "async def verify(self, request):\n        return 0.0"
        body = (
            text if text.startswith("class") else f"class Env(gymq.Resources[gymq.Row]):\n    {text}\n\n    {verify}\n"
        )
        file.write_text(f"import gymq\n{body}")
    resources = str(file) if text else "grader.py"
    place.configure(configuration(place.folder, resources, **options))
    sentence = await place.refused("up", "--config", "config.yaml")
    assert said.format(file=file) in sentence
    assert sentence.startswith("gymq: ")
    assert sentence.count("\n") == 1


@pytest.mark.parametrize(
    ("stays_up_s", "expected"), [(-1.0, [0.25, 0.25, 0.25, 0.25]), (60.0, [0.25, 0.5, 1.0, 2.0])], ids=["up", "down"]
)
async def test_the_pause_before_a_restart_grows_only_while_a_process_does_not_stay_up(
    stays_up_s: float, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    pause, this_task = asyncio.sleep, asyncio.current_task()

    async def sleep(seconds: float) -> None:
        if asyncio.current_task() is not this_task:  # of the cluster on the same loop, which would never pause again
            await pause(seconds)
        else:
            pauses.append(seconds)

    async def ended() -> str:
        return "signal SIGKILL"

    async def start() -> None:
        if len(pauses) == len(expected):
            raise EOFError

    monkeypatch.setattr("gymq.processes.keeping.asyncio.sleep", sleep)
    with pytest.raises(EOFError):
        await keeping.keep_running("some", ended, start, stays_up_s=stays_up_s)
    assert pauses == expected


@pytest.mark.parametrize("problem", [OSError(24, "Too many open files"), UsageError("some: it cannot")])
async def test_a_process_that_cannot_be_started_now_is_started_later(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    problems = [problem, problem]
    serves = asyncio.Event()

    async def ended() -> str:
        if serves.is_set():
            await asyncio.Event().wait()
        return "signal SIGKILL"

    async def start() -> None:
        if problems:
            raise problems.pop()
        serves.set()

    monkeypatch.setattr(keeping, "SHORTEST_PAUSE_S", 0.0)
    kept = asyncio.create_task(keeping.keep_running("some", ended, start))
    serving = asyncio.create_task(serves.wait())
    await asyncio.wait([kept, serving], return_when=asyncio.FIRST_COMPLETED)
    kept.cancel()
    assert serving.done()
    assert f"some: {str(problem).removeprefix('some: ')}" in caplog.text


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_log_stays_bounded_on_a_full_disk_too(
    is_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "agents.log"
    log.write_bytes(bytes(11))
    monkeypatch.setattr(launch, "LOG_MAX_BYTES", 10)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if is_full:
        monkeypatch.setattr("gymq.cluster.launch.shutil.copy", fail)
    launch._trim_once(tmp_path)
    assert log.read_bytes() == b""
    assert (tmp_path / "agents.old.log").exists() is not is_full


class Hosted:
    """A process of a cluster that only notes its end; the first one does not stop."""

    stopped: list[str]

    def __init__(self, name: str, spec: ProcessSpec) -> None:
        self.name = name
        self.spec = spec
        self.serves = True

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        if self.name == "first-0":
            raise RuntimeError("it cannot stop")
        self.stopped.append(self.name)


async def test_a_process_that_cannot_stop_keeps_nothing_else_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hosted, "stopped", [], raising=False)
    workers = [Instance(name, "agents", "simple_agent", {"num_workers": 2}) for name in ("first", "second")]
    async with launch.Cluster(workers, folder=tmp_path, new_child=Hosted):
        assert await find_running(tmp_path / "jetstream") is not None
    assert sorted(Hosted.stopped) == ["first-1", "second-0", "second-1", "services"]
    assert await find_running(tmp_path / "jetstream") is None
    assert "first-0 did not stop cleanly" in caplog.text
