"""The agent loop for verl, made and run as verl's own worker does it. Needs verl."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bridge.world import World
from tests.trainer.experts import with_experts

pytest.importorskip("verl", reason="verl is not installed here; `make test-generators` installs it")

POLICY = "examples/tiny_policy/checkpoint"


@pytest.fixture
def agent_loop(world: World, run: str, tmp_path: Path) -> Any:
    import hydra
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap
    from verl.utils.dataset.rl_dataset import RLHFDataset

    file = tmp_path / "agent_loops.yaml"
    target = "examples.trainers.verl_agent_loop.GymqAgentLoop"
    file.write_text(f"- {{name: gymq, _target_: {target}, nats: '{world.url}', run: {run}, max_staleness: 1}}\n")
    (registered,) = OmegaConf.load(file)
    config = OmegaConf.create(
        {"actor_rollout_ref": {"rollout": {"prompt_length": 64, "response_length": 8}}, "data": {}}
    )
    return hydra.utils.instantiate(
        config=registered,
        trainer_config=DictConfigWrap(config=config),
        server_manager=None,
        tokenizer=AutoTokenizer.from_pretrained(POLICY),
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
        hf_model_type="qwen2",
    )


async def test_a_sample_has_what_verl_needs_and_its_sampling_values(agent_loop: Any, world: World) -> None:
    row = json.dumps(world.row("say done"))
    output = await agent_loop.run({"temperature": 0.5, "top_p": 0.9}, row=row, raw_prompt=[])
    assert output.reward_score == 1.0
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs)
    assert len(output.response_ids) <= 8
    assert set(output.response_mask) == {1}
    assert set(output.as_dict()) >= {"prompts", "responses", "response_mask", "rollout_log_probs"}
    (asked,) = world.engine.requests
    assert (asked["temperature"], asked["top_p"]) == (0.5, 0.9)


async def test_experts_of_tokens_are_passed_on(agent_loop: Any, world: World) -> None:
    world.engine.spoil = with_experts
    output = await agent_loop.run({}, row=json.dumps(world.row("say done")))
    fields = output.as_dict()
    experts, num_tokens = fields["routed_experts"], len(output.prompt_ids) + len(output.response_ids)
    assert experts.tolist() == [[[token, 1]] for token in range(num_tokens - 1)] + [[[0, 0]]]  # verl's filling


async def test_a_masked_sample_is_not_trained_on(agent_loop: Any, world: World) -> None:
    row = json.dumps(world.row("say done", verdict={"mask_sample": True}))
    output = await agent_loop.run({}, row=row)
    assert set(output.response_mask) == {0}


async def test_a_sample_that_cannot_be_made_ends_with_the_reason(agent_loop: Any, world: World) -> None:
    row = json.dumps(world.row("say done", verdict={"fails": {"class": "invalid_task"}}))
    with pytest.raises(RuntimeError, match="no rollout in 3 tries: as the row asks"):
        await agent_loop.run({}, row=row)
