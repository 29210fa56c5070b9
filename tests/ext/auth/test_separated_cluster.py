"""A cluster whose processes all have roles of their own does all its work, is never denied anything, and keeps secrets.

Everything runs as people run it: a server with the configuration of `gymq auth init`, `gymq up`, `gymq collect`.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from gymq.bus import Bus, blobs, streams
from gymq.bus.queue.client import QueueClient
from gymq.bus.rpc.calls import Calls
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import BlobRef, Generate, Generated, Task
from gymq.protocol.subjects import RolloutId
from tests.support.waiting import DEADLINE_S

from .conftest import RoleServer
from .raw_client import RawClient

DEMO = Path(__file__).parents[3] / "examples" / "demo"
GYMQ = [sys.executable, "-c", "from gymq.cli import main; main()"]
ROWS_OF_EACH = 3
NUM_ROLLOUTS = 4 * ROWS_OF_EACH * 2

_decode_ref = Decoder(BlobRef)


class SeparatedCluster:
    """`gymq up` on a server with roles."""

    def __init__(self, server: RoleServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.printed = b""
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("GYMQ_")}
        self._environment |= {"GYMQ_NATS": server.url, "GYMQ_AUTH": str(server.folder)}
        self._up: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = self.folder / "up.log"
        command = [*GYMQ, "up", "--config", "config.yaml", "--log-level", "debug"]
        with log.open("wb") as errors:
            self._up = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=subprocess.PIPE, stderr=errors
            )
        assert self._up.stdout is not None
        first = self._up.stdout.readline()
        self.printed += first
        assert b"processes" in first, log.read_text()

    def stop(self) -> None:
        """As Ctrl-C does: what is in flight is finished."""
        if self._up is not None and self._up.poll() is None:
            self._up.send_signal(signal.SIGINT)
            self.printed += self._up.communicate(timeout=600)[0]

    @property
    def processes(self) -> list[psutil.Process]:
        assert self._up is not None
        up = psutil.Process(self._up.pid)
        return [up, *up.children(recursive=True)]

    def gymq(self, *arguments: str, status: int = 0, auth: Path | None = None) -> str:
        """What a command prints, with all passwords or those in a folder."""
        environment = self._environment | ({} if auth is None else {"GYMQ_AUTH": str(auth)})
        ran = subprocess.run([*GYMQ, *arguments], cwd=self.folder, env=environment, capture_output=True, timeout=600)
        self.printed += ran.stdout + ran.stderr
        assert ran.returncode == status, ran.stderr.decode()
        return ran.stdout.decode()

    def collect(self) -> dict[str, object]:
        """Roll the rows out twice each."""
        files = ("--config", "config.yaml", "--rows", "rows.jsonl", "--output", "runs/rollouts.jsonl")
        summary: dict[str, object] = json.loads(self.gymq("collect", *files, "--num-repeats", "2", "--json"))
        return summary


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeparatedCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    seen: Counter[str] = Counter()
    with (folder / "rows.jsonl").open("w") as rows:
        for line in (DEMO / "rows.jsonl").read_text().splitlines():
            agent = json.loads(line)["agent_ref"]["name"]
            seen[agent] += 1
            if seen[agent] <= ROWS_OF_EACH:
                rows.write(line + "\n")
    assert len(seen) == 4
    config = {
        "config_paths": [str(DEMO / "config.yaml")],
        "math_with_judge": {"resources_servers": {"math_with_judge": {"should_use_judge": True}}},
        "policy_model": {"responses_api_models": {"simulated_model": {"skill": 0.0}}},  # so that the judge is asked
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    server = RoleServer(folder / "auth")
    server.start()
    running = SeparatedCluster(server, folder)
    running.start()
    yield running
    running.stop()
    server.stop()


@dataclass(frozen=True)
class Collected:
    run: str
    done: int
    subjects: set[str]  # the first two tokens of all that was said meanwhile
    violations: list[str]


@pytest.fixture(scope="module")
def collected(cluster: SeparatedCluster) -> Collected:
    """A whole collection, overheard."""

    async def overhear() -> tuple[dict[str, object], set[str]]:
        operator = await RawClient.connect(cluster.server.url_of("operator"), "operator")
        heard = await operator.hears(">")
        summary = await asyncio.to_thread(cluster.collect)
        await operator.flush()
        await operator.close()
        return summary, {".".join(message.subject.split(".")[:2]) for message in heard}

    summary, said = asyncio.run(overhear())
    return Collected(str(summary["run"]), int(str(summary["done"])), said, cluster.server.violations())


def test_a_whole_collection_is_denied_nothing(collected: Collected) -> None:
    assert collected.violations == []
    assert collected.done == NUM_ROLLOUTS
    # Or it would prove little.
    kinds = ("tasks", "rollouts", "done", "model", "judge", "journal", "runs", "seed", "session")
    assert {"$JS.ACK", *(f"gym.{kind}" for kind in kinds)} <= collected.subjects


def test_commands_that_look_are_denied_nothing(cluster: SeparatedCluster, collected: Collected) -> None:
    run = collected.run
    assert len(cluster.gymq("rollouts", "--run", run, "--json").splitlines()) == NUM_ROLLOUTS
    assert "mcqa_simple_agent" in cluster.gymq("profile", "--run", run, "--json")
    status = json.loads(cluster.gymq("status", "--json"))
    assert {worker["kind"] for worker in status["workers"]} == {"agents", "models", "resources"}
    assert cluster.server.violations() == []


def test_who_has_the_password_of_the_viewer_alone_sees_the_runs(
    cluster: SeparatedCluster, collected: Collected, tmp_path: Path
) -> None:
    shutil.copy(cluster.server.folder / "viewer.password", tmp_path)
    export = ("--export", str(tmp_path / "shared"), "--run", collected.run)
    shown = cluster.gymq("view", "--nats", cluster.server.url, *export, auth=tmp_path)
    assert f"1 run with {NUM_ROLLOUTS} rollouts" in shown
    assert cluster.server.violations() == []


@pytest.mark.nightly
async def test_submissions_and_dead_letters_are_denied_nothing(cluster: SeparatedCluster, run: str) -> None:
    bus = await Bus.connect(cluster.server.url_of("client"), role="client", name="test")
    submission = {"type": "submission.v1", "run": run, "agent": "nobody", "row": {"responses_create_params": {}}}
    await bus.js.store(subjects.SUBMISSION.pattern, json.dumps(submission).encode())
    await bus.close()
    async with asyncio.timeout(DEADLINE_S):
        while not (letters := cluster.gymq("dead-letters", "list", "--run", run, "--json").splitlines()):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    number = str(json.loads(letters[0])["number"])
    cluster.gymq("dead-letters", "requeue", number, status=1)  # it is not served now either
    cluster.gymq("dead-letters", "drop", number)
    assert cluster.server.violations() == []


async def test_a_client_cancels_what_is_queued_without_storing_outcomes_itself(
    role_server: RoleServer, run: str
) -> None:
    client = await Bus.connect(role_server.url_of("client"), role="client", name="test")
    js = client.js
    for task_index in range(3):
        task = Task(run=run, task_index=task_index, rollout_index=0, agent="a", row=b"{}", timeout_s=60)
        await js.store(subjects.TASK.of(run, "a"), encode(task))
    assert await QueueClient(client).cancel(run) == 3
    assert len([mark async for mark in js.read(streams.RUNS, subjects.CANCELLED.of(run))]) == 1
    assert len([task async for task in js.read(streams.TASKS, subjects.TASK.of(run))]) == 3
    await client.close()


async def test_a_cancelled_run_is_stopped_by_the_agents(cluster: SeparatedCluster, run: str) -> None:
    rows = (cluster.folder / "rows.jsonl").read_text().splitlines()
    bus = await Bus.connect(cluster.server.url_of("client"), role="client", name="test")
    await QueueClient(bus).cancel(run)  # before its first task, so that no agent begins with it
    submission = {"type": "submission.v1", "run": run, "task_index": 0, "row": json.loads(rows[0])}
    await bus.js.store(subjects.SUBMISSION.pattern, json.dumps(submission).encode())
    await bus.close()
    async with asyncio.timeout(DEADLINE_S):
        while not (listed := cluster.gymq("rollouts", "--run", run, "--failed", "--json")):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert json.loads(listed.splitlines()[0])["failure_class"] == "cancelled"
    assert cluster.server.violations() == []


@pytest.mark.parametrize("role", ["agent", "bridge"])
async def test_large_calls_travel_in_parts_and_are_denied_nothing(cluster: SeparatedCluster, role: str) -> None:
    bus = await Bus.connect(cluster.server.url_of(role), role=role, name="test")
    request = {"input": [{"role": "user", "content": "x" * (9 << 20)}]}
    call = Generate(rollout="large", timeout_s=60, session="large", params=request)
    answer = await Calls(bus).call("gym.model.policy_model", call)
    await bus.close()
    assert isinstance(answer, Generated)
    assert cluster.server.violations() == []


async def test_large_outcomes_of_agents_and_services_are_read_by_clients(cluster: SeparatedCluster, run: str) -> None:
    body = os.urandom(9 << 20)
    reader = await Bus.connect(cluster.server.url_of("client"), role="client", name="test")
    for number, role in enumerate(("agent", "services")):
        writer = await Bus.connect(cluster.server.url_of(role), role=role, name="test")
        ref = await blobs.store(writer, body, "rollout", RolloutId(run, 0, number))
        await writer.close()
        assert await blobs.fetch(reader, _decode_ref(ref), "rollout") == body
    await reader.close()
    assert cluster.server.violations() == []


# Secrets --------------------------------------------------------------------------------------------------------------


def holders(cluster: SeparatedCluster, text: str) -> list[str]:
    """Whose password is in a text."""
    return [role for role, password in cluster.server.passwords().items() if password in text]


def environment_of(process: psutil.Process) -> dict[str, str]:
    """Return the environment of a process as far as this user may read it; workers hide theirs from all but root."""
    try:
        return process.environ()
    except psutil.AccessDenied:
        return {}


def test_no_process_shows_a_password_in_its_arguments_or_environment(cluster: SeparatedCluster) -> None:
    processes = cluster.processes
    assert len(processes) >= 5
    for process in processes:
        assert holders(cluster, " ".join(process.cmdline())) == []
        assert holders(cluster, " ".join(environment_of(process).values())) == []


def test_workers_are_not_told_where_the_passwords_of_others_are(cluster: SeparatedCluster) -> None:
    up, *workers = cluster.processes
    if os.geteuid() == 0:
        assert environment_of(up)["GYMQ_AUTH"] == str(cluster.server.folder)
    assert [worker.pid for worker in workers if "GYMQ_AUTH" in environment_of(worker)] == []


def test_no_file_that_is_written_has_a_password(cluster: SeparatedCluster, collected: Collected) -> None:
    written = {
        path: path.read_bytes().decode("latin-1")
        for path in cluster.folder.rglob("*")
        if path.is_file() and path.parent != cluster.server.folder
    }
    names = {path.name for path in written}
    assert {"agents.log", "models.log", "resources.log", "services.log", "up.log", "rollouts.jsonl"} <= names
    assert any(path.suffix == ".blk" for path in written), "the streams are among them"
    assert {path.name: holders(cluster, text) for path, text in written.items() if holders(cluster, text)} == {}


async def test_monitoring_and_what_commands_print_have_no_password(cluster: SeparatedCluster) -> None:
    cluster.gymq("status")
    cluster.gymq("auth", "show")
    assert cluster.printed
    assert holders(cluster, cluster.printed.decode()) == []
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{cluster.server.monitor_port}") as client:
        for page in ("/varz", "/connz?auth=1&subs=1", "/accountz?acc=GYMQ", "/jsz?config=1"):
            answer = await client.get(page)
            assert answer.status_code == 200
            assert holders(cluster, answer.text) == []


# Machines with some of the passwords ----------------------------------------------------------------------------------


def only(cluster: SeparatedCluster, folder: Path, *roles: str) -> dict[str, str]:
    """The environment of a machine that has the passwords of some roles."""
    folder.mkdir()
    for role in roles:
        (folder / f"{role}.password").write_text(cluster.server.password(role))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GYMQ_")}
    return environment | {"GYMQ_NATS": cluster.server.url, "GYMQ_AUTH": str(folder)}


def up_with(cluster: SeparatedCluster, folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    config = folder / "config.yaml"
    config.write_text("mcqa: {resources_servers: {mcqa: {entrypoint: worker.py, domain: knowledge}}}\n")
    command = [*GYMQ, "up", "--config", str(config)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe)


def test_a_machine_with_the_password_of_one_role_runs_that_role_alone(
    cluster: SeparatedCluster, tmp_path: Path
) -> None:
    up = up_with(cluster, tmp_path, only(cluster, tmp_path / "passwords", "resources"))
    assert up.stdout is not None
    first = up.stdout.readline()
    up.terminate()
    _, errors = up.communicate(timeout=600)
    assert b"1 process" in first, errors.decode()
    assert b"operator" in errors
    assert b"services" in errors
    assert cluster.server.violations() == []


def test_a_machine_without_the_password_that_its_workers_need_says_so(
    cluster: SeparatedCluster, tmp_path: Path
) -> None:
    up = up_with(cluster, tmp_path, only(cluster, tmp_path / "passwords", "model"))
    printed, errors = up.communicate(timeout=600)
    assert up.returncode == 2
    assert b"no password of the role 'resources'" in errors
    assert b"Traceback" not in printed + errors
