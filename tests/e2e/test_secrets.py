"""What is secret stays in the processes that need it."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from gymq.data.materialise import MaterialiseOptions
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan

from .running_cluster import SECRET, RunningCluster, row

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def secrets(cluster: RunningCluster) -> list[str]:
    """The model's key and the passwords of the bus."""
    urls = [cluster.url, *(child.spec.url for child in cluster.processes.children)]
    passwords = {urlsplit(url).password for url in urls}
    assert None not in passwords
    return [SECRET, *filter(None, passwords)]


async def test_no_secret_gets_into_files_outcomes_or_logs_even_when_a_model_shouts_it(
    cluster: RunningCluster, secrets: list[str], tmp_path: Path
) -> None:
    rows = [row("plain"), row("fails", script={"model_fails": 99}), row("echoes", script={"model_echoes_key": True})]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(content) + "\n" for content in rows))
    options = CollectOptions(
        tmp_path / "rows.jsonl", tmp_path / "out" / "rollouts.jsonl", MaterialiseOptions(agent_name="asker")
    )
    progress = await Collection(cluster.bus, RunPlan(options)).run()
    texts = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert "the engine refuses ***" in texts["rollouts_failures.jsonl"]
    assert "the key is ***, and so are the headers" in texts["rollouts.jsonl"]
    texts |= {path.name: path.read_text() for path in (cluster.folder / "logs").iterdir()}
    assert "the engine refuses ***" in texts["agents.log"]
    texts["outcomes"] = repr(await cluster.stored(progress.run))
    texts["dead letters"] = repr(await cluster.dead_letters())
    assert {(name, secret) for secret in secrets for name, text in texts.items() if secret in text} == set()


def environment_of(process: psutil.Process) -> dict[str, str]:
    """Return the environment of a process as far as this user may read it; workers hide theirs from all but root."""
    try:
        return process.environ()
    except psutil.AccessDenied:
        return {}


async def test_no_secret_is_seen_by_those_who_list_processes(secrets: list[str]) -> None:
    seen = [
        " ".join([*process.cmdline(), *(f"{name}={value}" for name, value in environment_of(process).items())])
        for process in psutil.Process().children(recursive=True)
    ]
    assert len(seen) > 5
    assert [text for text in seen if any(secret in text for secret in secrets)] == []


async def test_files_that_hold_passwords_are_for_their_owner_alone(cluster: RunningCluster, secrets: list[str]) -> None:
    holding = [
        path
        for path in cluster.folder.rglob("*")
        if path.is_file() and path.suffix != ".blk" and any(secret.encode() in path.read_bytes() for secret in secrets)
    ]
    assert holding
    assert [path for path in holding if path.stat().st_mode & 0o077] == []
