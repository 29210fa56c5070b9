"""Stored runs in Weights & Biases and in MLflow: the real packages, and what they wrote read back."""

import asyncio
import json
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.errors import UsageError
from gymq.ext.formats import run_report
from gymq.ext.formats.command import export
from gymq.ext.formats.mlflow import MlflowRun
from gymq.ext.formats.run_report import COLUMNS, RunReport
from gymq.ext.formats.wandb import WandbRun
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import FailureClass, Outcome, Run, Unresolved
from gymq.stats.running import RunningProfile
from gymq.testing import reply
from tests.support.ports import free_port
from tests.support.stored import failure, rollout

RECORD = Run(run="r", created_at=1.7e9, models=["policy = m at http://me:secret@host"], num_rollouts=5)


def outcomes() -> list[Outcome]:
    usage = {"usage": {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}}
    unresolved = rollout("r", 2)
    return [
        rollout("r", 0, 0, num_rollouts=2, reward=1.0, response=reply("Bern") | usage, verdict={"judge/score": 0.5}),
        rollout("r", 0, 1, num_rollouts=2, reward=0.0, duration_s=3.0, response=reply("Rome") | usage),
        rollout("r", 1, 0, num_rollouts=1, reward=0.0),
        Unresolved(
            **{name: getattr(unresolved, name) for name in ("run", "task_index", "rollout_index", "agent", "row")},
            response=unresolved.response,
            failure_class=FailureClass.VERIFIER_FAILED,
            message="no judge",
        ),
        failure("r", 3, message="http://me:secret@host is away"),
    ]


def report(*more: Outcome, record: Run = RECORD) -> RunReport:
    made = RunReport(record, RunningProfile(), 0)
    for sequence, outcome in enumerate([*outcomes(), *more], 1):
        made.add(sequence, outcome)
    return made


FIGURES = {
    "outcomes": 5,
    "asker/rollouts": 3,
    "asker/tasks": 2,
    "asker/pass@1": 25.0,
    "asker/pass@2": 100.0,
    "asker/failures/model_failed": 1,
    "asker/failures/verifier_failed": 1,
    "asker/mean/judge_score": 0.5,
    "asker/total/output_tokens": 4,
    "asker/duration_s": 5 / 3,
    "asker/duration_s_max": 3.0,
}
CURVE = {1: 1.0, 2: 0.5, 3: 0.25, 4: 0.25, 5: 0.25}


# What is recorded -----------------------------------------------------------------------------------------------------


def test_the_figures_are_those_of_the_profile() -> None:
    figures = report().figures()
    assert {name: figures.get(name) for name in FIGURES} == FIGURES
    assert figures["asker/reward"] == 0.25 == figures["asker/pass@1"] / 100
    assert figures["asker/reward_low"] < figures["asker/reward"] < figures["asker/reward_high"]


def test_outcomes_that_a_checkpoint_counts_are_not_counted_again() -> None:
    profile = RunningProfile()
    profile.add("asker", 0, 0, reward=1.0, num_rollouts=2)
    made = RunReport(RECORD, profile, profiled=1)
    for sequence, outcome in enumerate(outcomes()[:2], 1):
        made.add(sequence, outcome)
    assert made.figures()["asker/rollouts"] == 2


def test_the_table_shows_every_kind_of_outcome() -> None:
    cells = [dict(zip(COLUMNS, row, strict=True)) for row in report().rows]
    done, _, _, unresolved, failed = cells
    assert (done["reward"], done["failure_class"], done["output_tokens"]) == (1.0, None, 2)
    assert (done["prompt"], done["reply"]) == ("question 0", "Bern")
    assert (unresolved["reward"], unresolved["failure_class"], unresolved["reply"]) == (None, "verifier_failed", "Bern")
    assert (failed["reward"], failed["failure_class"], failed["prompt"]) == (None, "model_failed", "")
    assert failed["message"] == "http://***@host is away"


@pytest.mark.parametrize(
    "row", [b"\xff", b"[]", b"3", b'{"responses_create_params": {"input": [4, {"role": "user"}]}}']
)
def test_a_row_that_was_never_checked_is_shown_without_prompt(row: bytes) -> None:
    broken = failure("r", 9)
    broken.row = row
    assert report(broken).rows[-1][COLUMNS.index("prompt")] == ""


def test_table_and_curve_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_report, "MAX_ROWS", 4)
    monkeypatch.setattr(run_report, "MAX_POINTS", 10)
    made = report(*(rollout("r", 4, index, text="x" * 9_999) for index in range(100)))
    assert len(made.rows) == 4
    counts = [point.num_outcomes for point in made.curve()]
    assert counts == [16, 32, 48, 64, 80, 96, 105]
    assert made.curve()[-1].values == {"asker/reward_so_far": 0.5}


def test_a_text_in_the_table_is_shortened() -> None:
    assert report(rollout("r", 4, text="x" * 9_999)).rows[-1][COLUMNS.index("reply")] == "x" * 499 + "…"


# Weights & Biases -----------------------------------------------------------------------------------------------------


# The two packages take seconds to import, so collecting these tests does not do it.
@pytest.fixture
def wandb() -> Any:
    return pytest.importorskip("wandb", reason="pip install 'gymq[wandb]'")


@pytest.fixture
def fresh(wandb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A wandb that reads its variables again."""
    for name in ("DIR", "DATA_DIR", "CACHE_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path))
    wandb.teardown()
    yield
    wandb.teardown()


@pytest.fixture
def offline(fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WANDB_MODE", "offline")
    return tmp_path / "wandb"


def records(file: Path) -> Iterator[Any]:
    """What wandb wrote: the log format of LevelDB, behind 7 bytes of its own."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, record, block = file.read_bytes(), 7, b"", 32 * 1024
    while at < len(data):
        left = block - at % block
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield Record.FromString(record)
            record = b""


def wandb_runs(folder: Path) -> list[list[Any]]:
    import wandb

    wandb.teardown()  # wandb's process writes the last of it when it ends
    return [list(records(file)) for file in sorted(folder.glob("offline-run-*/run-*.wandb"))]


def values(entries: Any) -> dict[str, Any]:
    return {entry.key or "/".join(entry.nested_key): json.loads(entry.value_json) for entry in entries}


def sent(made: RunReport, tmp_path: Path) -> str:
    file = tmp_path / "outcomes.parquet"
    file.write_bytes(b"a table")
    where = WandbRun("team/project", made.record.run).send(made, file)
    file.unlink()
    return where


def test_wandb_gets_figures_curve_table_and_artifact(offline: Path, tmp_path: Path) -> None:
    where = sent(report(), tmp_path)
    assert where.startswith(str(offline))
    (written,) = wandb_runs(offline)
    (run,) = (record.run for record in written if record.HasField("run"))
    assert (run.run_id, run.display_name, run.entity, run.project) == ("r", "r", "team", "project")
    summary: dict[str, Any] = {}
    for record in written:
        summary |= values(record.summary.update)
    assert {name: summary.get(name) for name in FIGURES} == pytest.approx(FIGURES)
    history = [values(record.history.item) for record in written if record.HasField("history")]
    curve = {item["_step"]: item["asker/reward_so_far"] for item in history if "asker/reward_so_far" in item}
    assert curve == pytest.approx(CURVE)
    (path,) = (item["outcomes_table/path"] for item in history if "outcomes_table/path" in item)
    (files,) = offline.glob("offline-run-*/files")
    table = json.loads((files / path).read_text())
    assert (table["columns"], len(table["data"])) == (list(COLUMNS), 5)
    artifacts = [record.request.log_artifact.artifact for record in written]
    artifacts += [record.artifact for record in written]
    (ours,) = (artifact for artifact in artifacts if artifact.type == "rollouts")
    (entry,) = ours.manifest.contents
    assert (ours.name, entry.path) == ("r-outcomes", "outcomes.parquet")
    assert Path(entry.local_path).read_bytes() == b"a table"  # for `wandb sync`, though ours is gone


def test_wandb_is_told_nothing_of_the_machine_and_no_password(wandb: Any, offline: Path, tmp_path: Path) -> None:
    sent(report(), tmp_path)
    wandb.teardown()
    (file,) = offline.glob("offline-run-*/run-*.wandb")
    assert b"me:secret" not in file.read_bytes()
    assert not [record for record in records(file) if record.HasField("environment") or record.run.HasField("git")]
    assert [path.name for path in (file.parent / "files").iterdir()] == ["media"]


def test_a_second_export_is_the_same_run_of_wandb(offline: Path, tmp_path: Path) -> None:
    for made in (report(), report(rollout("r", 4))):
        sent(made, tmp_path)
        runs = [record.run for written in wandb_runs(offline) for record in written if record.HasField("run")]
        # The server resumes the run of this id; offline no server knows it.
        assert {(run.entity, run.project, run.run_id, run.resume) for run in runs} == {("team", "project", "r", True)}


def test_a_run_of_wandb_that_is_resumed_gets_the_rest_of_the_curve(offline: Path, tmp_path: Path) -> None:
    target = WandbRun("project", "r")
    target._run._starting_step = 4  # as when three outcomes were exported before
    (tmp_path / "outcomes.parquet").touch()
    target.send(report(), tmp_path / "outcomes.parquet")
    (written,) = wandb_runs(offline)
    history = [values(record.history.item) for record in written if record.HasField("history")]
    assert [item["_step"] for item in history if "asker/reward_so_far" in item] == [4, 5]
    assert any("outcomes_table/path" in item for item in history)


@pytest.mark.parametrize("project", ["", "team/", "a/b/c"])
def test_a_project_that_is_none_is_refused(offline: Path, project: str) -> None:
    with pytest.raises(UsageError, match="PROJECT or ENTITY/PROJECT"):
        WandbRun(project, "r")


@pytest.mark.nightly
def test_a_wandb_that_is_away_is_told(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{free_port('127.0.0.1')}")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    monkeypatch.setattr("gymq.ext.formats.wandb.MAX_RETRIES", 1)
    with pytest.raises(UsageError, match=r"Weights & Biases cannot take the run: .*connection refused"):
        WandbRun("project", "r")


def test_a_wandb_that_is_disabled_is_told(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with pytest.raises(UsageError, match="disabled by WANDB_MODE"):
        WandbRun("project", "r")


# MLflow ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mlflow() -> Any:
    return pytest.importorskip("mlflow", reason="pip install 'gymq[mlflow]'")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mlflow")


@pytest.fixture
def client(mlflow: Any, store: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of a store in a database; each test has an experiment of its own."""
    monkeypatch.chdir(store)  # where the artifacts go
    configure(monkeypatch, f"sqlite:///{store}/mlflow.db")
    return mlflow.MlflowClient()


def configure(monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    monkeypatch.setenv("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")


def logged(made: RunReport, experiment: str, tmp_path: Path) -> str:
    file = tmp_path / "outcomes.parquet"
    file.write_bytes(b"a table")
    return MlflowRun(experiment, made.record.run).send(made, file)


def mlflow_runs(client: Any, experiment: str) -> list[Any]:
    return list(client.search_runs([client.get_experiment_by_name(experiment).experiment_id]))


def test_mlflow_gets_figures_curve_table_and_artifact(client: Any, tmp_path: Path) -> None:
    logged(report(), "all", tmp_path)
    (run,) = mlflow_runs(client, "all")
    assert (run.info.run_name, run.info.status) == ("r", "FINISHED")
    expected = {name.replace("@", "_at_"): value for name, value in FIGURES.items()}
    assert {name: run.data.metrics.get(name) for name in expected} == pytest.approx(expected)
    expected_params = {"run": "r", "models": "policy = m at http://***@host", "num_rollouts": "5"}
    assert run.data.params == expected_params | {"created_at": "2023-11-14T22:13:20+00:00"}
    curve = client.get_metric_history(run.info.run_id, "asker/reward_so_far")
    assert {point.step: point.value for point in curve} == pytest.approx(CURVE)
    file = client.download_artifacts(run.info.run_id, "outcomes.parquet", str(tmp_path))
    assert Path(file).read_bytes() == b"a table"
    table = client.load_table(run.info.experiment_id, "outcomes_table.json")
    assert list(table.columns) == list(COLUMNS)
    assert table["failure_class"].fillna("").tolist() == ["", "", "", "verifier_failed", "model_failed"]


def test_a_second_export_updates_the_run_of_mlflow(client: Any, tmp_path: Path) -> None:
    logged(report(), "twice", tmp_path)
    changed = Run(run="r", created_at=1.8e9, num_rollouts=6)
    logged(report(rollout("r", 4), record=changed), "twice", tmp_path)
    (run,) = mlflow_runs(client, "twice")
    assert (run.data.metrics["outcomes"], run.data.metrics["asker/rollouts"]) == (6, 4)
    curve = client.get_metric_history(run.info.run_id, "asker/reward_so_far")
    assert sorted(point.step for point in curve) == [1, 2, 3, 4, 5, 6]
    assert len(client.load_table(run.info.experiment_id, "outcomes_table.json")) == 6


def test_names_that_mlflow_does_not_take_are_changed_and_stay_apart(client: Any, tmp_path: Path) -> None:
    odd = {"a@b": 1.0, "a_at_b": 2.0, "": 3.0, "..": 4.0, "süß%": 5.0, "x" * 300: 6.0}
    logged(report(rollout("r", 4, verdict=odd)), "odd", tmp_path)
    (run,) = mlflow_runs(client, "odd")
    means = {name: value for name, value in run.data.metrics.items() if "/mean/" in name}
    assert set(odd.values()) <= set(means.values())


def test_more_figures_than_mlflow_takes_at_once_are_sent_in_parts(client: Any, tmp_path: Path) -> None:
    many = {f"n{number}": float(number) for number in range(200)}
    made = report(*(rollout("r", 4, index, verdict=many, agent=f"agent-{index}") for index in range(4)))
    logged(made, "many", tmp_path)
    (run,) = mlflow_runs(client, "many")
    assert len(run.data.metrics) > 1000
    assert run.data.metrics["agent-3/mean/n199"] == 199


def test_an_mlflow_that_is_away_is_told(mlflow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, f"http://me:secret@127.0.0.1:{free_port('127.0.0.1')}")
    with pytest.raises(UsageError, match=r"MLflow at http://\*\*\*@127.* cannot take the run: .*refused") as raised:
        MlflowRun("experiment", "r")
    assert "secret" not in str(raised.value)


def test_an_experiment_without_a_name_is_refused(client: Any) -> None:
    with pytest.raises(UsageError, match="name of an experiment"):
        MlflowRun("", "r")


def test_a_tracking_server_gets_a_run_once(mlflow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        version("mlflow")
    except PackageNotFoundError:
        pytest.skip("the server is in all of mlflow: pip install mlflow")
    port = free_port("127.0.0.1")
    configure(monkeypatch, f"http://127.0.0.1:{port}")
    places = ["--backend-store-uri", f"sqlite:///{tmp_path}/server.db", "--artifacts-destination", str(tmp_path / "a")]
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1", *places]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            wait_for(f"http://127.0.0.1:{port}/health")
            assert [logged(report(), "e", tmp_path) for _ in range(2)][1].startswith(f"http://127.0.0.1:{port}/#/")
            (run,) = mlflow_runs(client := mlflow.MlflowClient(), "e")
            assert run.data.metrics["asker/pass_at_2"] == 100
            assert {file.path for file in client.list_artifacts(run.info.run_id)} == {
                "outcomes.parquet",
                "outcomes_table.json",
            }
        finally:
            server.terminate()


def wait_for(url: str) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(url):
                return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(url)


# The command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(shared_url: str, run: str) -> str:
    async def put() -> None:
        bus = await Bus.connect(shared_url, role="test", name="test")
        await bus.js.store(subjects.RUN.of(run), encode(Run(run=run, created_at=1.7e9, num_rollouts=2)))
        row = {"responses_create_params": {"input": "call http://me:pw@host with 0123456789abcdef, 1e400"}}
        for outcome in (rollout(run, 0, row=row, text="0123456789abcdef"), failure(run, 1)):
            assert await OutcomeStore(bus).put(outcome, replaces=None, patience_s=30.0)
        await bus.close()

    asyncio.run(put())
    return run


def test_the_command_sends_a_run_to_mlflow_without_its_secrets(
    client: Any, stored: str, shared_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setenv("SOME_API_KEY", "0123456789abcdef")
    monkeypatch.setattr("gymq.redaction._hidden", set())
    assert export(run=stored, mlflow="command", nats=shared_url) == 0
    assert capsys.readouterr().out.startswith(f"2 outcomes of {stored} in run ")
    (run,) = mlflow_runs(client, "command")
    assert (run.info.run_name, run.data.params["num_rollouts"]) == (stored, "2")
    done, failed = parquet.read_table(client.download_artifacts(run.info.run_id, "outcomes.parquet")).to_pylist()
    assert json.loads(done["params"]) == {"input": "call http://***@host with ***, 1e400"}
    assert "0123456789abcdef" not in str(done)
    assert failed["failure_class"] == "model_failed"


def test_the_command_sends_a_run_to_wandb(offline: Path, stored: str, shared_url: str, capsys: Any) -> None:
    assert export(run=stored, wandb="project", nats=shared_url) == 0
    assert f"2 outcomes of {stored} in {offline}" in capsys.readouterr().out
    (written,) = wandb_runs(offline)
    assert any(record.run.run_id == stored for record in written)


def test_a_run_that_is_not_stored_makes_no_run_there(client: Any, run: str, shared_url: str) -> None:
    with pytest.raises(UsageError, match=f"run '{run}' not found"):
        export(run=run, mlflow="nothing", nats=shared_url)
    assert client.get_experiment_by_name("nothing") is None


@pytest.mark.parametrize("targets", [{}, {"wandb": "p", "mlflow": "e"}, {"output": Path("x.jsonl"), "wandb": "p"}])
def test_one_target_must_be_given(targets: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="give one of --output FILE, --wandb PROJECT and --mlflow EXPERIMENT"):
        export(run="r", **targets)


@pytest.mark.parametrize("package", ["wandb", "mlflow"])
def test_a_package_that_is_missing_is_told(
    package: str, stored: str, shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    target: dict[str, Any] = {package: "x"}
    with pytest.raises(UsageError, match=rf'^{package} is not installed: pip install "gymq\[{package}\]"$'):
        export(run=stored, nats=shared_url, **target)
