"""`gymq weights push` to real replicas, one of which is killed in the middle, while rollouts are made."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from gymq.bus import Bus
from gymq.bus.discovery import find_workers
from gymq.bus.rpc.calls import Calls
from gymq.cluster.launch import Cluster
from gymq.data.materialise import MaterialiseOptions
from gymq.protocol import subjects
from gymq.protocol.instances import Instance
from gymq.protocol.messages import Generate, Generated, VerifiedRollout
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan
from tests.support.waiting import until

from .conftest import ACK_WAIT_S
from .running_cluster import WORKERS, RunningCluster, row

pytestmark = pytest.mark.asyncio(loop_scope="session")


@dataclass(frozen=True)
class Place:
    """A cluster with two replicas of a policy, and the folder in which they leave notes."""

    cluster: RunningCluster
    folder: Path

    def file(self, text: str) -> Path:
        header = json.dumps({"t": {"dtype": "U8", "shape": [len(text)], "data_offsets": [0, len(text)]}}).encode()
        path = self.folder / "weights.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + text.encode())
        return path

    async def push(self, version: str, file: Path, *more: str) -> tuple[int, str, str]:
        """What `gymq weights push` ends with, and what it prints."""
        command = ("weights", "push", "--model", "policy", "--policy-version", version, "--file", str(file), *more)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from gymq.cli import main; main()"),
            *(*command, "--nats", self.cluster.url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    def loading(self) -> set[int]:
        """The processes that have begun to load."""
        file = self.folder / "loading"
        return set(map(int, file.read_text().split())) if file.exists() else set()

    async def answers(self) -> dict[str, tuple[str, list[str]]]:
        """The weights and the version of each replica."""
        found = {}
        for stats in await find_workers(self.cluster.bus, "policy"):
            request = Generate(rollout="r/0/0", timeout_s=30.0, params={"input": []}, session="s")
            generated = await Calls(self.cluster.bus).call(subjects.REPLICA.of("policy", stats["id"]), request)
            assert isinstance(generated, Generated)
            text = generated.response["output"][0]["content"][0]["text"]
            found[stats["id"]] = (text, generated.policy_versions)
        return found

    def replicas(self) -> dict[int, str]:
        """The name of each replica's process, by its id."""
        children = [child for child in self.cluster.children if child.spec.role == "model"]
        return {child.process.pid: child.name for child in children if child.process is not None}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("weights")

    def agent(name: str, environment: str) -> Instance:
        references = {
            "model_server": {"type": "responses_api_models", "name": "policy"},
            "resources_server": {"type": "resources_servers", "name": environment},
        }
        return Instance(name, "agents", "simple_agent", references)

    options = {"folder": str(folder), "num_workers": 2}
    instances = [
        Instance("policy", "models", str(WORKERS / "weighted_model.py"), options),
        Instance("grader", "resources", str(WORKERS / "grader.py")),
        Instance("adding", "resources", str(WORKERS / "adding.py")),
        agent("asker", "grader"),
        agent("adder", "adding"),
    ]
    async with Cluster(instances, folder=folder, ack_wait_s=ACK_WAIT_S, drain_s=2.0) as cluster:
        bus = await Bus.connect(cluster.url, role="test", name="test")
        yield Place(RunningCluster(cluster, bus, folder), folder)
        await bus.close()


async def test_a_replica_killed_while_it_loads_comes_back_with_the_weights_and_no_rollout_is_lost(
    place: Place, run: str
) -> None:
    wait = place.folder / "wait"
    wait.touch()
    await place.cluster.submit(run, "asker", [row(f"before {number}") for number in range(20)])
    before = await place.cluster.outcomes(run, 20)
    pushing = asyncio.create_task(place.push("v1", place.file("one")))
    await until(lambda: len(place.loading()) == 2)
    killed = min(place.loading())
    name = place.replicas()[killed]
    place.cluster.kill(name)
    await place.cluster.submit(f"{run}-while", "asker", [row(f"while {number}") for number in range(20)])
    await place.cluster.outcomes(f"{run}-while", 20)
    wait.unlink()
    status, out, err = await pushing
    assert (status, out, err) in [
        (0, "1 replica of policy answer with v1\n", ""),
        (0, "2 replicas of policy answer with v1\n", ""),  # it was back before the other one had loaded
    ]
    await place.cluster.until_restarted(name, 0)
    assert sorted((await place.answers()).values()) == [("one", ["v1"])] * 2
    await place.cluster.submit(f"{run}-after", "asker", [row(f"after {number}") for number in range(20)])
    after = await place.cluster.outcomes(f"{run}-after", 20)
    assert all(isinstance(outcome, VerifiedRollout) for outcome in [*before.values(), *after.values()])
    assert {tuple(outcome.policy_versions) for outcome in before.values()} == {()}
    assert {tuple(outcome.policy_versions) for outcome in after.values()} == {("v1",)}


async def test_a_collection_with_a_limit_takes_no_rollout_of_an_older_policy(place: Place) -> None:
    await place.push("old", place.file("old"))
    (place.folder / "hold").touch()
    data, output = place.folder / "rows.jsonl", place.folder / "rollouts.jsonl"
    data.write_text(json.dumps(row("say done")) + "\n")
    options = CollectOptions(
        input=data, output=output, materialise=MaterialiseOptions(agent_name="asker"), max_staleness=0
    )
    collecting = asyncio.create_task(Collection(place.cluster.bus, RunPlan(options)).run())
    await until((place.folder / "held").exists)
    await place.push("new", place.file("new"))
    (place.folder / "hold").unlink()
    assert (await collecting).done == 1
    made = json.loads(output.read_text())
    assert (made["policy_version"], made["_ng_attempt_index"]) == ("new", 1)
    assert made["response"]["output"][0]["content"][0]["text"] == "new"


@pytest.mark.parametrize("in_flight", ["finish", pytest.param("restart", marks=pytest.mark.nightly)])
async def test_an_agent_killed_while_an_update_waits_leaves_no_rollout_of_two_policies(
    place: Place, run: str, in_flight: str
) -> None:
    await place.push(f"{run}-old", place.file("old"))
    hold, held = place.folder / "hold", place.folder / "held"
    held.unlink(missing_ok=True)
    hold.touch()
    await place.cluster.submit(run, "adder", [row(str(number), expected=1) for number in range(8)])
    await until(held.exists)
    pushing = asyncio.create_task(place.push(f"{run}-new", place.file("new"), "--in-flight", in_flight))
    before = place.cluster.child("agents").restarts
    place.cluster.kill("agents")
    await place.cluster.until_restarted("agents", before)
    hold.unlink()
    status, _, err = await pushing
    assert (status, err) == (0, "")
    found = await place.cluster.outcomes(run, 8)
    for outcome in found.values():
        assert isinstance(outcome, VerifiedRollout)
        assert outcome.reward == 1.0
        said = {item["content"][0]["text"] for item in outcome.response["output"] if item["type"] == "message"}
        assert [f"{run}-{text}" for text in said] == outcome.policy_versions
    assert len(await place.cluster.stored(run)) == 8


@pytest.mark.nightly
async def test_replicas_that_refuse_are_named_with_the_reason(place: Place) -> None:
    await place.push("good", place.file("good"))
    status, out, err = await place.push("bad", place.file("broken"))
    assert (status, out) == (1, "0 replicas of policy answer with bad\n")
    assert "the previous weights stay the newest" in err
    assert err.count("does not: policy cannot load the weights 'bad': ValueError: a tensor is missing") == 2
    assert sorted((await place.answers()).values()) == [("good", ["good"])] * 2
    assert (await place.push("better", place.file("better")))[0] == 0


async def test_a_push_that_makes_no_sense_is_refused_in_one_sentence(place: Place) -> None:
    config = place.folder / "weights.safetensors"
    config.write_text("no weights at all")
    for file, more, text in (
        (config, (), "not a safetensors file"),
        (place.folder / "none", (), "cannot be read: No such file or directory"),
        (config, ("--path", "/x"), "either --path"),
    ):
        status, out, err = await place.push("v9", file, *more)
        assert (status, out) == (2, "")
        assert text in err
        assert err.count("\n") == 1
