"""The environment actor of NeMo RL, on a real Ray, called as NeMo RL calls it."""

import asyncio
import json
import subprocess
import sys
import tempfile
import types
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gymq.errors import UsageError
from gymq.ext.shared.row_failed import RowFailed
from gymq.ext.trainers.nemo_rl import NemoGym, _traced, remote_class
from tests.support.engine import say
from tests.support.environments import Counter
from tests.support.waiting import DEADLINE_S
from tests.support.world import World

TIMER = "timing/rollout"


def rows_of(world: World, count: int) -> list[dict[str, Any]]:
    """Rows as NeMo RL sends them: a group of rows that differ in their numbers only."""
    return [world.row("say done", _rowidx=at, _ng_task_index=7) for at in range(count)]


def config(world: World, run: str) -> dict[str, Any]:
    joined = {"gymq": {"nats": world.url, "run": run}}
    return {"model_name": "policy", "base_urls": [], "initial_global_config_dict": joined}


def test_ray_is_not_imported_before_an_actor_is_made() -> None:
    code = "import sys, gymq.ext.trainers.nemo_rl; sys.exit('ray' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_an_actor_that_is_not_spun_up_says_so(world: World, run: str) -> None:
    environment = NemoGym(config(world, run))
    for call in (environment.health_check, environment.list_entries):
        with pytest.raises(UsageError, match="call _spinup first"):
            await call()
    await environment.shutdown()


@pytest.mark.nightly
async def test_what_serves_no_more_is_named(world: World, run: str) -> None:
    environment = NemoGym(config(world, run))
    await environment._spinup()
    await environment.health_check()
    environment._expected["gone"] = ("resources", "grader")
    with pytest.raises(UsageError, match="no worker serves resources_servers gone"):
        await environment.health_check()
    await environment.shutdown()
    await environment.shutdown()


async def test_rows_that_cannot_be_given_back_are_refused(world: World, run: str) -> None:
    environment = NemoGym(config(world, run))
    await environment._spinup()
    try:
        with pytest.raises(UsageError, match="call set_tokenizer before"):
            await anext(environment.run_rollouts(rows_of(world, 1), TIMER))
        environment.set_tokenizer(object())
        with pytest.raises(UsageError, match="at least one row"):
            await anext(environment.run_rollouts([], TIMER))
        with pytest.raises(UsageError, match=r"row 1 \('say done'\) has no `_rowidx`"):
            await anext(environment.run_rollouts([world.row()], TIMER))
    finally:
        await environment.shutdown()
    assert not world.engine.requests


def shard(world: World, run: str, agent: str, resources: str, folder: Path) -> dict[str, Any]:
    """What NeMo RL gives the actor of a shard: the files of its entries, and `gymq`, which all shards inherit."""
    references = {
        "entrypoint": "worker.py",
        "resources_server": {"type": "resources_servers", "name": world.name(resources)},
        "model_server": {"type": "responses_api_models", "name": world.name("policy")},
    }
    entries = {
        world.name("policy"): {"responses_api_models": {"simulated_model": {"entrypoint": "worker.py"}}},
        world.name(resources): {"resources_servers": {"mcqa": {"entrypoint": "worker.py", "domain": "knowledge"}}},
        world.name(agent): {"responses_api_agents": {"simple_agent": references}},
    }
    file = folder / f"{agent}.yaml"
    file.write_text(json.dumps(entries))
    cfg = config(world, run)
    cfg["initial_global_config_dict"]["config_paths"] = [str(file)]
    return cfg


async def test_shards_of_one_cluster_list_what_each_is_configured_for(world: World, run: str, tmp_path: Path) -> None:
    await world.add_resources("counter", Counter())
    await world.add_agent("counting", "counter")
    asked = (("asker", "grader"), ("counting", "counter"))
    shards = [NemoGym(shard(world, run, agent, resources, tmp_path)) for agent, resources in asked]
    try:
        for environment, (agent, resources) in zip(shards, asked, strict=True):
            await environment._spinup()
            listed = {world.name(agent), world.name(resources), world.name("policy")}
            assert set(await environment.list_entries()) == listed
            source = {"_rowidx": 0, "task_source": world.name(resources)}
            assert environment._agent_of(source)["agent_ref"]["name"] == world.name(agent)
    finally:
        for environment in shards:
            await environment.shutdown()


async def test_a_shard_without_its_workers_says_which_is_missing(
    world: World, run: str, tmp_path: Path, no_patience: None
) -> None:
    environment = NemoGym(shard(world, run, "nobody", "grader", tmp_path))
    try:
        with pytest.raises(UsageError, match=f"no worker serves responses_api_agents {world.name('nobody')}"):
            await environment._spinup()
    finally:
        await environment.shutdown()


# On Ray ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A cluster of this process only."""
    found = pytest.importorskip("ray", reason="Ray is not installed here; `make test-in NAME=vllm` installs it")
    pytest.importorskip("torch", reason="torch is not installed here; `make test-in NAME=vllm` installs it")
    with tempfile.TemporaryDirectory(prefix="ray") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        found.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 << 20)
        yield found
        found.shutdown()


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    transformers = pytest.importorskip("transformers", reason="`make test-in NAME=vllm` installs it")
    return transformers.AutoTokenizer.from_pretrained("examples/tiny_policy/checkpoint")


@pytest.fixture
async def actor(ray: Any, world: World, run: str, tokenizer: Any) -> AsyncIterator[Any]:
    made = remote_class().options(num_cpus=0).remote(config(world, run))
    await made._spinup.remote()
    await made.set_tokenizer.remote(tokenizer)
    yield made
    await made.shutdown.remote()
    ray.kill(made)


async def streamed(actor: Any, rows: list[dict[str, Any]]) -> list[Any]:
    return [await one async for one in actor.run_rollouts.remote(rows, TIMER)]


async def test_an_actor_streams_message_logs(actor: Any, world: World, tokenizer: Any) -> None:
    found = await streamed(actor, rows_of(world, 5))
    assert sorted(number for number, *_ in found) == list(range(5))
    assert len(world.engine.requests) == 5
    assert [timings is None for *_, timings in found] == [True] * 4 + [False]
    assert {f"{TIMER}/await_results", f"{TIMER}/postprocess_results_pct"} <= found[-1][3].keys()
    _, agent_ref, result, _ = found[0]
    assert agent_ref == {"name": world.name("asker")}
    assert result["full_result"]["reward"] == 1.0
    prompt, reply = result["message_log"]
    assert (prompt["role"], reply["role"]) == ("user", "assistant")
    assert reply["token_ids"].dtype.is_floating_point is False
    assert reply["generation_logprobs"].shape == reply["token_ids"].shape
    assert result["input_message_log"][0]["token_ids"].tolist() == prompt["token_ids"].tolist()
    (item,) = result["full_result"]["response"]["output"]
    assert "generation_token_ids" not in item
    assert item["generation_str"] == tokenizer.decode(reply["token_ids"])
    assert item["prompt_str"] == tokenizer.decode(prompt["token_ids"])


class Known:
    """Interfaces of NeMo RL's own actor."""

    class August:
        async def run_rollouts(self) -> AsyncGenerator[tuple[int, dict[str, Any], dict[str, Any] | None], None]:
            yield 0, {}, None

    class September:
        async def run_rollouts(
            self,
        ) -> AsyncGenerator[tuple[int, dict[str, Any], dict[str, Any], dict[str, Any] | None], None]:
            yield 0, {}, {}, None

    class Later:
        async def run_rollouts(self) -> AsyncGenerator[dict[str, Any], None]:
            yield {}


@pytest.mark.parametrize(("known", "num_values"), [(Known.August, 3), (Known.September, 4)])
async def test_an_actor_yields_what_the_one_that_it_replaces_does(
    ray: Any, world: World, run: str, tokenizer: Any, known: Any, num_values: int
) -> None:
    made = remote_class(ray.remote(known)).options(num_cpus=0).remote(config(world, run))
    await made._spinup.remote()
    await made.set_tokenizer.remote(tokenizer)
    try:
        found = await streamed(made, rows_of(world, 3))
    finally:
        await made.shutdown.remote()
        ray.kill(made)
    assert {len(values) for values in found} == {num_values}
    assert sorted(values[0] for values in found) == [0, 1, 2]
    assert all(values[-2]["full_result"]["reward"] == 1.0 for values in found)


def test_an_actor_with_an_unknown_interface_is_not_replaced(ray: Any) -> None:
    with pytest.raises(UsageError, match=r"yields .* not known here"):
        remote_class(ray.remote(Known.Later))


async def test_a_task_source_names_an_agent_or_the_resources_of_one(world: World, run: str) -> None:
    environment = NemoGym(config(world, run))
    await environment._spinup()
    environment._agents_of["exam"] = ["one", "other"]
    environment._agents_of["math"] = ["solver"]
    try:
        for source, agent in ((world.name("asker"), world.name("asker")), ("math", "solver")):
            assert environment._agent_of({"_rowidx": 0, "task_source": source})["agent_ref"]["name"] == agent
        for source, problem in (("exam", "belongs to one, other"), ("gone", "names no agent")):
            with pytest.raises(UsageError, match=f"row 0: `task_source` '{source}' {problem}"):
                environment._agent_of({"_rowidx": 0, "task_source": source})
    finally:
        await environment.shutdown()


async def test_a_call_continues_the_trace_of_nemo_rl(monkeypatch: pytest.MonkeyPatch) -> None:
    instrumentation = types.ModuleType("nemo_rl.telemetry.instrumentation")
    instrumentation.__dict__["accepts_trace_context"] = lambda method: ("traced", method)
    monkeypatch.setitem(sys.modules, "nemo_rl", types.ModuleType("nemo_rl"))
    monkeypatch.setitem(sys.modules, "nemo_rl.telemetry", types.ModuleType("nemo_rl.telemetry"))
    monkeypatch.setitem(sys.modules, "nemo_rl.telemetry.instrumentation", instrumentation)
    assert _traced(NemoGym.run_rollouts) == ("traced", NemoGym.run_rollouts)


async def test_rows_that_are_sent_again_are_new_rollouts(actor: Any, world: World) -> None:
    rows = rows_of(world, 2)
    await streamed(actor, rows)
    await streamed(actor, rows[:1])
    assert len(world.engine.requests) == 3


async def test_a_row_that_fails_comes_last_with_a_status(actor: Any, world: World) -> None:
    rows = rows_of(world, 4)
    rows[1]["verdict"] = {"fails": {"class": "component_failed"}}
    numbers = []
    stream = actor.run_rollouts.remote(rows, TIMER)

    async def follow() -> None:
        async for one in stream:
            numbers.append((await one)[0])

    with pytest.raises(RowFailed) as caught:
        await follow()
    assert sorted(numbers) == [0, 2, 3]
    failed: Any = caught.value  # Ray derives a class with the cause
    assert failed.cause.status == 500


async def test_a_call_that_is_only_text_is_told(actor: Any, world: World) -> None:
    world.engine.turn = lambda body: say("<tool_call>no</tool_call>")
    ((_, _, result, _),) = await streamed(actor, rows_of(world, 1))
    assert result["message_log"][1]["is_invalid_tool_call"] is True
    assert result["message_log"][1]["has_malformed_thinking"] is False


async def test_an_actor_tells_what_it_serves_and_that_it_does(actor: Any, world: World) -> None:
    await actor.health_check.remote()
    entries = await actor.list_entries.remote()
    assert entries[world.name("asker")] == ["responses_api_agents"]
    assert entries[world.name("policy")] == ["responses_api_models"]
    assert world.name("asker") in await actor.agent_implementations.remote()


async def test_an_actor_starts_a_cluster_of_its_own(ray: Any, tokenizer: Any) -> None:
    tree = {
        "config_paths": ["workers/resources/mcqa/config.yaml", "workers/models/simulated_model/config.yaml"],
        "policy_model": {"responses_api_models": {"simulated_model": {"token_ids": True}}},
    }
    cfg = {"model_name": "policy", "base_urls": ["http://127.0.0.1:1/v1"], "initial_global_config_dict": tree}
    made = remote_class().options(num_cpus=0).remote(cfg)
    await made._spinup.remote()
    try:
        await made.set_tokenizer.remote(tokenizer)
        row = {
            "responses_create_params": {"input": [{"role": "user", "content": "A or B?"}]},
            "options": [{"A": "x"}, {"B": "y"}],
            "expected_answer": "B",
            "task_source": "mcqa",
        }
        found = await streamed(made, [{**row, "_rowidx": at} for at in range(4)])
        assert all(values[1]["name"] == "mcqa_simple_agent" for values in found)
        assert sorted(number for number, *_ in found) == [0, 1, 2, 3]
    finally:
        async with asyncio.timeout(DEADLINE_S):
            await made.shutdown.remote()
        ray.kill(made)
