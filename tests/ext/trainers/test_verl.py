"""The agent loop managers for verl, run as its trainers do, with its own workers, types and batches. Needs verl."""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest

from gymq.errors import UsageError
from tests.support.experts import with_experts
from tests.support.world import World

pytest.importorskip("verl", reason="verl is not installed here; `make test-in NAME=generators` installs it")

POLICY = "examples/tiny_policy/checkpoint"


@pytest.fixture
def config(world: World, run: str) -> Any:
    import verl.trainer.config
    from hydra import compose, initialize_config_dir

    rollout = "actor_rollout_ref.rollout"
    settings = {
        "actor_rollout_ref.model.path": POLICY,
        f"{rollout}.name": "vllm",
        f"{rollout}.prompt_length": 256,
        f"{rollout}.response_length": 192,
        f"{rollout}.temperature": 0.5,
        f"{rollout}.top_p": 0.9,
        f"{rollout}.top_k": 7,
        f"+{rollout}.repetition_penalty": 1.1,
        f"{rollout}.n": 2,
        f"+{rollout}.custom.gymq.nats": f"'{world.url}'",
        f"+{rollout}.custom.gymq.run": run,
    }
    with initialize_config_dir(str(Path(verl.trainer.config.__file__).parent), version_base=None):
        return compose("ppo_trainer", [f"{name}={value}" for name, value in settings.items()])


def batch_of(*rows: Any, step: int = 1, size: int = 2, validate: bool = False) -> Any:
    """Return a batch as verl's legacy trainer makes it: each prompt so many times."""
    import numpy
    from verl.protocol import DataProto

    columns = {"uid": range(len(rows)), "row": [json.dumps(row) for row in rows], "raw_prompt": [[]] * len(rows)}
    made = {name: numpy.empty(len(rows), dtype=object) for name in columns}
    for name, values in columns.items():
        made[name][:] = list(values)
    batch = DataProto(non_tensor_batch=made, meta_info={"global_steps": step, "validate": validate})
    return batch.repeat(size, interleave=True)


async def generate(config: Any, batch: Any) -> Any:
    from gymq.ext.trainers.verl import GymqLegacyManager

    def work() -> Any:
        return GymqLegacyManager.create(config, llm_client=None).generate_sequences(batch)

    return await asyncio.to_thread(work)


async def test_a_batch_has_what_verl_needs_and_is_sampled_as_configured(config: Any, world: World) -> None:
    output = await generate(config, batch_of(world.row("say one"), world.row("say two")))
    assert output.batch["rm_scores"].sum(-1).tolist() == [1.0] * 4
    assert output.batch["responses"].shape == output.batch["rollout_log_probs"].shape == (4, 192)
    assert output.batch["response_mask"].sum(-1).min() > 0
    names = ("temperature", "top_p", "top_k", "repetition_penalty")
    assert {tuple(asked[name] for name in names) for asked in world.engine.requests} == {(0.5, 0.9, 7, 1.1)}
    assert {asked.get("max_tokens", asked.get("max_completion_tokens")) for asked in world.engine.requests} == {192}


async def test_a_step_that_is_repeated_is_answered_from_the_store(config: Any, world: World) -> None:
    first = await generate(config, batch_of(world.row("say one"), world.row("say one")))
    again = await generate(config, batch_of(world.row("say one"), world.row("say one")))
    assert again.batch["responses"].tolist() == first.batch["responses"].tolist()
    assert len(world.engine.requests) == 4
    await generate(config, batch_of(world.row("say one"), step=2))
    await generate(config, batch_of(world.row("say one"), step=2, validate=True))
    assert len(world.engine.requests) == 8


async def test_the_weights_of_each_step_are_announced_for_a_limit(config: Any, run: str, world: World) -> None:
    from gymq.ext.trainers.verl import GymqLegacyManager

    limit(config, world)
    batches = [batch_of(world.row("say one"), step=step) for step in (1, 2)]
    batches.insert(0, batch_of(world.row("say one"), step=0, validate=True))

    def work() -> None:
        manager = GymqLegacyManager.create(config, llm_client=None)
        for batch in batches:
            manager.generate_sequences(batch)

    await asyncio.to_thread(work)
    assert await versions(run, world) == [["step-0"]] * 4 + [["step-1"]] * 2


def limit(config: Any, world: World) -> None:
    from omegaconf import open_dict

    with open_dict(config):
        config.actor_rollout_ref.rollout.custom.gymq |= {"max_staleness": 1, "model": world.name("policy")}


async def versions(run: str, world: World) -> list[list[str]]:
    return [outcome.policy_versions async for _, outcome in world.outcomes.read(run)]


async def test_experts_of_tokens_are_passed_on(config: Any, world: World) -> None:
    world.engine.spoil = with_experts
    output = await generate(config, batch_of(world.row("say done"), size=1))
    tokens = output.batch["attention_mask"][0].nonzero().flatten().tolist()
    experts = output.batch["routed_experts"][0, tokens].tolist()
    assert experts[:-1] == [[[number, 1]] for number in range(len(tokens) - 1)]


async def test_a_masked_sample_is_not_trained_on(config: Any, world: World) -> None:
    output = await generate(config, batch_of(world.row("say done", verdict={"mask_sample": True})))
    assert output.batch["response_mask"].sum() == 0
    assert output.batch["rm_scores"].sum() == 2.0


async def test_a_row_that_always_fails_is_masked_and_changes_no_mean(config: Any, world: World) -> None:
    failing = world.row("say never", verdict={"fails": {"class": "invalid_task"}})
    output = await generate(config, batch_of(world.row("say one"), failing))
    assert output.batch["rm_scores"].sum(-1).tolist() == [1.0] * 4
    assert output.batch["response_mask"][2:].sum() == 0
    with pytest.raises(UsageError, match=r"'say never'\) has 0 of 2 samples: as the row asks"):
        await generate(config, batch_of(failing, step=2))


async def test_a_data_set_without_rows_is_refused(config: Any) -> None:
    with pytest.raises(UsageError, match="the data set needs the column `row`"):
        await generate(config, batch_of("no row"))


@dataclass
class Put:
    """What was put into verl's transfer queue, which needs actors of Ray."""

    prompts: list[tuple[str, str]] = field(default_factory=list)  # partition and status
    sequences: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # fields and tag

    async def put_prompt(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        self.prompts.append((partition_id, tag["status"]))

    async def put_sequences(self, keys: list[str], fields: Any, tags: list[Any], partition_id: str) -> None:
        self.sequences |= dict(zip(keys, zip(fields, tags, strict=True), strict=True))


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Put:
    import transfer_queue

    made = Put()
    monkeypatch.setattr(transfer_queue, "init", lambda: None)
    monkeypatch.setattr(transfer_queue, "async_kv_put", made.put_prompt)
    monkeypatch.setattr(transfer_queue, "async_kv_batch_put", made.put_sequences)
    return made


async def run_prompt(config: Any, row: Any) -> None:
    from gymq.ext.trainers.verl import _Worker

    prompt = {"uid": "u", "row": json.dumps(row), "raw_prompt": [], "global_steps": 3}
    await _Worker(config, None)._run_prompt(prompt, {}, {"validate": False, "step": 3})


async def test_all_sequences_of_a_rollout_are_trained_on(config: Any, put: Put, world: World, five_calls: Any) -> None:
    await run_prompt(config, five_calls)
    assert put.prompts == [("train", "running"), ("train", "finished")]
    assert sorted(put.sequences) == [f"u_{sample}_{sequence}" for sample in range(2) for sequence in range(5)]
    for fields, tag in put.sequences.values():
        assert fields["rm_scores"].sum() == 1.0
        assert tag["min_global_steps"] == tag["max_global_steps"] == 2
    assert sum(int(fields["response_mask"].sum()) for fields, _ in put.sequences.values()) == world.engine.num_sampled


async def test_the_workers_of_a_manager_get_prompts_of_announced_weights(
    config: Any, run: str, world: World, put: Put
) -> None:
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ

    from gymq.ext.trainers.verl import GymqManager

    limit(config, world)
    dispatched = Mock()
    with patch.object(AgentLoopManagerTQ, "generate_sequences", dispatched):
        manager = GymqManager(config, None)
        await asyncio.to_thread(manager.generate_sequences, {"global_steps": 3})
    dispatched.assert_called_once()
    await run_prompt(config, world.row("say one"))
    assert await versions(run, world) == [["step-2"]] * 2


async def test_a_group_that_failed_is_reported_as_failed(config: Any, put: Put, world: World) -> None:
    await run_prompt(config, world.row("say never", verdict={"fails": {"class": "invalid_task"}}))
    assert put.prompts == [("train", "running"), ("train", "failure")]
    assert not put.sequences


async def test_the_legacy_trainer_is_told_what_it_does_not_see(
    config: Any, five_calls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    output = await generate(config, batch_of(five_calls, size=1))
    assert output.batch["response_mask"].sum() > 0
    assert "verl's legacy trainer trains on one sequence a sample" in caplog.text
