"""SkyRL's generator: its input becomes groups of rollouts, and its own functions take what comes back."""

import importlib
import importlib.util
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gymq.errors import UsageError
from gymq.ext.trainers.skyrl import GymqGenerator
from gymq.trainer import TrainingRun
from tests.support.experts import with_experts
from tests.support.world import World

HAS_SKYRL = importlib.util.find_spec("skyrl") is not None or "GYMQ_REQUIRE_SKYRL" in os.environ


@dataclass
class _TrajectoryID:
    instance_id: str
    repetition_id: int


@dataclass
class _BatchMetadata:
    global_step: int
    training_phase: str


# Types of the same form let the generator be tested where SkyRL is missing.
_base: Any = importlib.import_module("skyrl.train.generators.base") if HAS_SKYRL else None
TrajectoryID: Any = _base.TrajectoryID if HAS_SKYRL else _TrajectoryID
BatchMetadata: Any = _base.BatchMetadata if HAS_SKYRL else _BatchMetadata

Batch = Callable[..., dict[str, Any]]


@pytest.fixture
def batch(world: World) -> Batch:
    """A `GeneratorInput`: so many prompts, each so many times, as SkyRL's `prepare_generator_input` makes it."""

    def make(num_prompts: int, num_samples: int, *, step: int | None = 1, **members: Any) -> dict[str, Any]:
        rows = [world.row(f"say {number}", **members) for number in range(num_prompts)]
        repeated = [(at, repetition) for at in range(num_prompts) for repetition in range(num_samples)]
        return {
            "prompts": [rows[at]["responses_create_params"]["input"] for at, _ in repeated],
            "env_classes": ["gymq"] * len(repeated),
            "env_extras": [{"row": json.dumps(rows[at])} for at, _ in repeated],
            "sampling_params": {"temperature": 0.5, "top_p": 0.9, "max_generate_length": 64, "top_k": -1, "min_p": 0.0},
            "trajectory_ids": [TrajectoryID(f"prompt-{at}", repetition) for at, repetition in repeated],
            "batch_metadata": None if step is None else BatchMetadata(step, "train"),
        }

    return make


async def test_trajectories_come_in_order_with_tokens_log_probs_and_rewards(
    training: TrainingRun, world: World, batch: Batch
) -> None:
    asked = batch(3, 2)
    output = await GymqGenerator(training).generate(asked)
    assert output["trajectory_ids"] == asked["trajectory_ids"]
    assert output["rewards"] == [1.0] * 6
    for response, mask, log_probs in zip(
        output["response_ids"], output["loss_masks"], output["rollout_logprobs"], strict=True
    ):
        assert len(response) == len(mask) == len(log_probs) > 0
        assert set(mask) == {1}
    assert output["prompt_token_ids"][0] == output["prompt_token_ids"][1] != output["prompt_token_ids"][2]
    assert len(world.engine.requests) == 6
    sampled = {(one["temperature"], one["top_p"], one.get("top_k")) for one in world.engine.requests}
    assert sampled == {(0.5, 0.9, None)}


async def test_a_step_that_is_asked_for_again_is_answered_from_the_store(
    training: TrainingRun, world: World, batch: Batch
) -> None:
    generator = GymqGenerator(training)
    first = await generator.generate(batch(2, 2))
    assert await generator.generate(batch(2, 2)) == first
    assert len(world.engine.requests) == 4
    await generator.generate(batch(2, 2, step=2))
    await generator.generate(batch(2, 2, step=None))
    assert len(world.engine.requests) == 12


async def test_the_weights_of_each_step_are_announced_for_a_limit(
    training: TrainingRun, world: World, batch: Batch
) -> None:
    generator = GymqGenerator(training, max_staleness=1)
    evaluated = {**batch(1, 2), "batch_metadata": BatchMetadata(0, "eval")}
    asked = [evaluated, *(batch(2, 2, step=step) for step in (1, 2, 3)), batch(2, 2, step=2)]
    for one in asked:
        await generator.generate(one)
    versions = [outcome.policy_versions async for outcome in training.stored()]
    assert versions == [[f"step-{step}"] for step in (0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2)]
    assert training.policy_version == "step-1"  # the trainer has gone back, and its rollouts are there


async def test_a_program_that_announces_itself_is_not_interfered_with(training: TrainingRun, batch: Batch) -> None:
    generator = GymqGenerator(training, max_staleness=1)
    await training.announce("mine")
    await generator.generate(batch(1, 2, step=1))
    await generator.generate(batch(1, 2, step=2))
    assert [outcome.policy_versions async for outcome in training.stored()] == [["mine"]] * 4


async def test_experts_are_all_or_none(training: TrainingRun, world: World, batch: Batch) -> None:
    assert (await GymqGenerator(training).generate(batch(1, 2)))["rollout_expert_indices"] is None
    world.engine.spoil = with_experts
    output = await GymqGenerator(training).generate(batch(1, 2, step=2))
    for experts, prompt, response in zip(
        output["rollout_expert_indices"], output["prompt_token_ids"], output["response_ids"], strict=True
    ):
        assert experts.tolist() == [[[token, 1]] for token in range(len(prompt) + len(response) - 1)]


async def test_a_masked_trajectory_keeps_its_reward_and_is_not_trained_on(training: TrainingRun, batch: Batch) -> None:
    output = await GymqGenerator(training).generate(batch(1, 2, verdict={"mask_sample": True}))
    assert output["rewards"] == [1.0, 1.0]
    assert {one for mask in output["loss_masks"] for one in mask} == {0}


async def test_a_row_that_always_fails_is_masked_and_changes_no_mean(
    training: TrainingRun, world: World, batch: Batch
) -> None:
    failing = batch(1, 2, verdict={"fails": {"class": "invalid_task"}})
    asked = batch(2, 2)
    asked["env_extras"][2:] = failing["env_extras"]
    output = await GymqGenerator(training).generate(asked)
    assert output["rewards"] == [1.0] * 4
    assert [sum(mask) > 0 for mask in output["loss_masks"]] == [True, True, False, False]
    with pytest.raises(UsageError, match=r"'say 0'\) has 0 of 2 samples: as the row asks"):
        await GymqGenerator(training).generate({**failing, "batch_metadata": None})


async def test_all_sequences_of_a_trajectory_are_trained_on_step_wise(
    training: TrainingRun, world: World, five_calls: dict[str, Any], batch: Batch
) -> None:
    asked = {**batch(1, 2), "env_extras": [{"row": json.dumps(five_calls)}] * 2}
    output = await GymqGenerator(training, step_wise=True).generate(asked)
    assert output["is_last_step"] == [False, False, False, False, True] * 2
    assert [one.repetition_id for one in output["trajectory_ids"]] == [0] * 5 + [1] * 5
    assert sum(map(sum, output["loss_masks"])) == world.engine.num_sampled
    if HAS_SKYRL:
        checks: Any = importlib.import_module("skyrl.train.utils.trainer_utils")
        checks.validate_generator_output(2, output, step_wise=True)


async def test_a_warning_says_what_is_not_trained_on(
    training: TrainingRun, five_calls: dict[str, Any], batch: Batch, caplog: pytest.LogCaptureFixture
) -> None:
    await GymqGenerator(training).generate({**batch(1, 1), "env_extras": [{"row": json.dumps(five_calls)}]})
    assert "SkyRL without step_wise_trajectories trains on one sequence a sample" in caplog.text


async def test_sampling_settings_reach_the_engine(training: TrainingRun, world: World, batch: Batch) -> None:
    settings = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2, "min_tokens": 2, "stop": None, "logprobs": 1}
    asked = batch(1, 1)
    await GymqGenerator(training).generate({**asked, "sampling_params": asked["sampling_params"] | settings})
    (request,) = world.engine.requests
    expected = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2, "min_tokens": 2}
    assert {name: request.get(name) for name in expected} == expected
    with pytest.raises(UsageError, match="sampling_params: n_beams cannot be passed on"):
        await GymqGenerator(training).generate({**asked, "sampling_params": {"n_beams": 4}})


@pytest.mark.parametrize("extras", [None, [{}], [{"row": "no json"}], [{"row": "{}"}], [{"row": "[]"}], [None]])
async def test_a_data_set_without_rows_is_refused(training: TrainingRun, batch: Batch, extras: Any) -> None:
    with pytest.raises(UsageError, match="row"):
        await GymqGenerator(training).generate({**batch(1, 1), "env_extras": extras})


@pytest.mark.skipif(not HAS_SKYRL, reason="SkyRL is not installed here; `make test-in NAME=generators` installs it")
async def test_functions_of_skyrl_accept_the_output(training: TrainingRun, world: World, batch: Batch) -> None:
    utils: Any = importlib.import_module("skyrl.train.generators.utils")
    checks: Any = importlib.import_module("skyrl.train.utils.trainer_utils")
    preprocess: Any = importlib.import_module("skyrl.train.dataset.preprocess")
    world.engine.spoil = with_experts
    generator = GymqGenerator(training)
    outputs: list[Any] = [await generator.generate(batch(4, 2, step=step)) for step in (1, 2)]
    for output in outputs:
        checks.validate_generator_output(8, output)
    joined = utils.concatenate_generator_outputs(outputs)
    uids = [one.instance_id for one in joined["trajectory_ids"] or ()]
    metrics = utils.get_metrics_from_generator_output(joined, uids)
    assert metrics["avg_score"] == 1.0
    names = ("prompt_token_ids", "response_ids", "rewards", "loss_masks", "rollout_logprobs", "rollout_expert_indices")
    rewards = [[reward] * len(ids) for reward, ids in zip(joined["rewards"], joined["response_ids"], strict=True)]
    tensors = preprocess.convert_prompts_responses_to_batch_tensors(
        0, *((joined | {"rewards": rewards})[name] for name in names)
    )
    assert tensors[6].values.shape[1:] == (1, 2)
