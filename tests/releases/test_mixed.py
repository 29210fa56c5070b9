"""A run continues while its processes are replaced by those of a later release, or of an earlier one."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from gymq.bus import Bus, streams
from gymq.bus.discovery import find_workers
from gymq.cluster.child import Child
from gymq.cluster.launch import Cluster
from gymq.cluster.server import EmbeddedServer
from gymq.errors import UsageError
from gymq.protocol.instances import Instance
from tests.releases.later import release
from tests.support.waiting import until, until_answer

pytest.importorskip("hatchling", reason="run `make test`: it installs what builds a wheel")

HERE = Path(__file__).parent
GYMQ = [sys.executable, "-c", "from gymq.cli import main; main()"]
NUM_ROWS, NUM_REPEATS = 40, 2


@pytest.fixture(scope="session")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a later release that meets this one."""
    return release(tmp_path_factory.mktemp("later"), "oldest=1, newest=2")


Up = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def up(own_server: EmbeddedServer, tmp_path: Path) -> Iterator[Up]:
    """Start some parts of a cluster, of this release or of the one in a folder."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*parts: str, release: Path | None) -> subprocess.Popen[bytes]:
        only = [word for part in parts for word in ("--only", part)]
        environment = os.environ | {"GYMQ_NATS": own_server.url}
        if release is not None:
            environment["PYTHONPATH"] = str(release)
        with (tmp_path / f"up-{len(started)}.log").open("wb") as log:
            process = subprocess.Popen(
                [*GYMQ, "up", "--config", "config.yaml", *only],
                cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        assert b"worker" in process.stdout.readline(), (tmp_path / f"up-{len(started) - 1}.log").read_text()
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=600)


def start(command: list[str], folder: Path, url: str) -> subprocess.Popen[bytes]:
    """Start a command of this release."""
    environment = os.environ | {"GYMQ_NATS": url}
    return subprocess.Popen(
        [*GYMQ, *command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


async def spoken(url: str) -> dict[str, str]:
    """The newest version of the protocol that the workers of each kind speak."""
    async with await Bus.connect(url, role="test", name="test") as bus:
        found = await until_answer(lambda: find_workers(bus), lambda found: len(found) == 4)
    return {worker["metadata"]["kind"]: worker["metadata"]["protocol_newest"] for worker in found}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the rows of the run, and the configuration of its cluster."""
    for worker in ("models/policy", "resources/adding"):
        (tmp_path / "workers" / worker).mkdir(parents=True)
        shutil.copy(HERE / "workers.py", tmp_path / "workers" / worker / "worker.py")
    references = {
        "model_server": {"type": "responses_api_models", "name": "policy"},
        "resources_server": {"type": "resources_servers", "name": "adding"},
    }
    options = {"entrypoint": "worker.py", "calls": str(tmp_path / "calls"), "pause_s": 0.2}
    config = {
        "policy": {"responses_api_models": {"policy": options}},
        "adding": {"resources_servers": {"adding": {"entrypoint": "worker.py", "domain": "math"}}},
        "agent": {
            "responses_api_agents": {"simple_agent": {"entrypoint": "worker.py", **references, "max_concurrency": 8}}
        },
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    add = {"type": "function", "name": "add", "strict": False}
    add["parameters"] = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    rows = [
        {
            "responses_create_params": {"input": [{"role": "user", "content": str(2 * number)}], "tools": [add]},
            "expected": 3,
        }
        for number in range(NUM_ROWS)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


async def collect(folder: Path, url: str, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """Collect all rows, do something when a quarter of the rollouts is there, and check what was collected."""
    output = folder / "rollouts.jsonl"
    command = ["collect", "--rows", "rows.jsonl", "--output", str(output), "--agent", "agent", "--json"]
    collecting = start([*command, "--num-repeats", str(NUM_REPEATS)], folder, url)
    await until(lambda: output.exists() and output.read_bytes().count(b"\n") >= NUM_ROWS * NUM_REPEATS // 8)
    await meanwhile()
    assert collecting.poll() is None, "the run has ended before everything was done"
    out, err = await asyncio.to_thread(collecting.communicate, timeout=600)
    assert collecting.returncode == 0, err.decode()
    summary = json.loads(out)
    assert (summary["done"], summary["failed"]) == (NUM_ROWS * NUM_REPEATS, 0)
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert Counter((line["_ng_task_index"], line["_ng_rollout_index"]) for line in lines) == {
        (row, repeat): 1 for row in range(NUM_ROWS) for repeat in range(NUM_REPEATS)
    }
    assert {line["reward"] for line in lines} == {1.0}
    assert set(Counter((folder / "calls").read_text().split()).values()) == {2}, "each turn is asked once"
    async with await Bus.connect(url, role="test", name="test") as bus:
        for stream, count in (
            (streams.ROLLOUTS, NUM_ROWS * NUM_REPEATS),
            (streams.TASKS, 0),
            (streams.DEAD_LETTERS, 0),
        ):
            assert (await bus.js.api(f"STREAM.INFO.{stream}"))["state"]["messages"] == count


@pytest.mark.nightly
@pytest.mark.parametrize("order", ["this, then the later one", "the later one, then this"])
async def test_agents_are_replaced_during_a_run(
    up: Up, later: Path, own_server: EmbeddedServer, folder: Path, order: str
) -> None:
    first, second = (None, later) if order.startswith("this") else (later, None)
    up("models", "resources", "services", release=second)
    agents = up("agents", release=first)
    assert await spoken(own_server.url) == {
        "agents": "1" if first is None else "2",
        "models": "1" if second is None else "2",
        "resources": "1" if second is None else "2",
        "services": "1" if second is None else "2",
    }

    async def replace() -> None:
        agents.send_signal(signal.SIGINT)
        up("agents", release=second)

    await collect(folder, own_server.url, replace)


async def test_a_cluster_replaces_its_processes_by_those_of_the_release_that_is_installed(
    up: Up, later: Path, own_server: EmbeddedServer, folder: Path
) -> None:
    installed = folder / "installed"
    cluster = up(release=installed)
    before = await spoken(own_server.url)
    assert set(before.values()) == {"1"}

    async def replace() -> None:
        installed.symlink_to(later)
        cluster.send_signal(signal.SIGUSR1)
        assert cluster.stdout is not None
        while b"all processes are replaced" not in (line := await asyncio.to_thread(cluster.stdout.readline)):
            assert line, "it has ended"

    await collect(folder, own_server.url, replace)
    assert await spoken(own_server.url) == dict.fromkeys(before, "2")


async def test_replacing_ends_at_a_release_that_does_not_meet_the_others(
    later: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = shutil.copytree(later, tmp_path / "far")
    versions = far / "gymq" / "protocol" / "versions.py"
    versions.write_text(versions.read_text().replace("oldest=1, newest=2", "oldest=7, newest=7"))
    env = Instance(name="env", kind="resources", implementation="mcqa", options={"domain": "other"})
    async with Cluster([env], folder=tmp_path) as cluster:
        processes = {child.name: child for child in cluster.children if isinstance(child, Child)}
        before = processes["resources"].process
        monkeypatch.setenv("PYTHONPATH", str(far))
        with pytest.raises(UsageError, match=r"services: this is gymq .* with protocol 7 to 7, but env of the cluster"):
            await cluster.replace_children()
        assert cluster.not_serving == ["services"]
        assert processes["resources"].process is before
        monkeypatch.delenv("PYTHONPATH")
        await cluster.replace_children()
        assert cluster.not_serving == []
        assert processes["resources"].process is not before
