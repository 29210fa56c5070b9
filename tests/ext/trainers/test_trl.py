"""The functions for TRL."""

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gymq.errors import UsageError
from gymq.ext.trainers.trl import TRLRollouts, VerifierReward, environment_reward
from gymq.trainer.sync import SyncTrainingRun
from tests.support.engine import Body, say
from tests.support.environments import Counter
from tests.support.world import World

END = 2


def trainer(step: int = 0, rank: int = 0, **args: Any) -> Any:
    """What a rollout function looks at of TRL's trainer."""
    defaults = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
    others = {"max_completion_length": 256, "generation_kwargs": None, "chat_template_kwargs": None}
    return SimpleNamespace(
        args=SimpleNamespace(**{**defaults, **others, **args}),
        state=SimpleNamespace(global_step=step),
        accelerator=SimpleNamespace(process_index=rank),
        processing_class=SimpleNamespace(eos_token_id=END),
    )


async def roll_out(
    world: World, run: str, rows: list[Any], prompts: list[Any], *trainers: Any, **options: Any
) -> list[Any]:
    """What a rollout function gives, for each of the trainers."""

    def call() -> list[Any]:
        with SyncTrainingRun(world.url, run) as training:
            rollouts = TRLRollouts(training, rows, **options)
            return [rollouts(prompts, one) for one in trainers or (trainer(),)]

    return await asyncio.to_thread(call)


def prompt_of(row: Any) -> Any:
    return row["responses_create_params"]["input"]


async def test_a_rollout_function_gives_a_sample_for_each_prompt(world: World, run: str) -> None:
    world.engine.turn = lambda body: say(f"done {body['messages'][-1]['content']}")
    rows = [world.row(f"say {name}", verdict={"reward": at / 4}) for at, name in enumerate("abc")]
    prompts = [prompt_of(rows[at]) for at in (2, 2, 2, 0, 0, 0, 1, 1, 1)]
    (given,) = await roll_out(world, run, rows, prompts)
    assert given["env_reward"] == [0.5] * 3 + [0.0] * 3 + [0.25] * 3
    assert {len(values) for values in given.values()} == {9}
    for at in range(9):
        assert len(given["completion_ids"][at]) == len(given["logprobs"][at]) == len(given["env_mask"][at])
    assert given["prompt_ids"][0] == given["prompt_ids"][2] != given["prompt_ids"][3]
    assert environment_reward(completions=prompts, **given) == given["env_reward"]
    assert len(world.engine.requests) == 9


async def test_a_row_may_be_short(world: World, run: str) -> None:
    row = world.row("say a")
    row |= {"prompt": row.pop("responses_create_params")["input"]}
    (given,) = await roll_out(world, run, [row], [row["prompt"]] * 2)
    assert given["env_reward"] == [1.0, 1.0]


async def test_a_group_that_is_split_over_processes_is_as_large_as_its_part(world: World, run: str) -> None:
    rows = [world.row("say a"), world.row("say b")]
    prompts = [prompt_of(rows[0])] * 3 + [prompt_of(rows[1])]
    (given,) = await roll_out(world, run, rows, prompts, trainer(rank=1))
    assert len(given["completion_ids"]) == 4


async def test_steps_and_calls_are_told_apart_and_a_step_begun_again_is_answered_from_the_store(
    world: World, run: str
) -> None:
    rows = [world.row("say a")]
    prompts = [prompt_of(rows[0])] * 2
    first = await roll_out(world, run, rows, prompts, trainer(3), trainer(3), trainer(4))
    assert len(world.engine.requests) == 6
    assert await roll_out(world, run, rows, prompts, trainer(3), trainer(3), trainer(4)) == first
    assert len(world.engine.requests) == 6
    await roll_out(world, run, rows, prompts, trainer(3, rank=1))
    assert len(world.engine.requests) == 8


async def test_a_step_that_is_begun_again_in_another_order_rolls_out_only_what_is_new(world: World, run: str) -> None:
    rows = [world.row(f"say {name}") for name in "abc"]
    a, b, c = map(prompt_of, rows)
    await roll_out(world, run, rows, [a, a, b, b, a, a], trainer(3))
    assert len(world.engine.requests) == 6
    await roll_out(world, run, rows, [b, b, c, c, a, a], trainer(3))
    assert len(world.engine.requests) == 8


async def test_a_failed_sample_is_masked_and_has_no_reward(world: World, run: str) -> None:
    num_asked = 0

    def turn(body: Body) -> Any:
        nonlocal num_asked
        num_asked += 1
        return say("done") if num_asked == 1 else (400, {"error": {"message": "no"}})

    world.engine.turn = turn
    rows = [world.row("say a")]
    (given,) = await roll_out(world, run, rows, [prompt_of(rows[0])] * 2)
    assert given["env_reward"] == [1.0, None]
    assert (given["completion_ids"][1], given["env_mask"][1]) == ([END], [0])
    assert given["prompt_ids"][1] == given["prompt_ids"][0]


async def test_a_sample_that_the_verifier_masks_is_not_trained_on(world: World, run: str) -> None:
    rows = [world.row("say a", verdict={"mask_sample": True})]
    (given,) = await roll_out(world, run, rows, [prompt_of(rows[0])])
    assert not any(given["env_mask"][0])
    assert given["env_reward"] == [1.0]


async def test_a_group_without_any_sample_is_masked_and_its_row_named(
    world: World, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.engine.turn = lambda body: (400, {"error": {"message": "out of order"}})
    rows = [world.row("say a")]
    (given,) = await roll_out(world, run, rows, [prompt_of(rows[0])] * 2)
    assert given["env_reward"] == [None, None]
    assert given["prompt_ids"] == given["completion_ids"] == [[END], [END]]
    assert re.search(r"task \d+ \('say a'\) has 0 of 2 samples: .*out of order", caplog.text)
    with pytest.raises(UsageError, match=r"\('say a'\) has 0 of 2 samples: .*out of order"):
        await roll_out(world, f"{run}-raising", rows, [prompt_of(rows[0])] * 2, on_failed_group="raise")


async def test_replies_are_sampled_as_the_trainer_is_configured(world: World, run: str) -> None:
    rows = [world.row("say a", params={"temperature": 0.1, "metadata": {"extra_body": '{"top_k": 7, "seed": 3}'}})]
    args: dict[str, Any] = {"temperature": 0.3, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1}
    more: dict[str, Any] = {
        "max_completion_length": 3,
        "generation_kwargs": {"stop": ["."]},
        "chat_template_kwargs": {"think": False},
    }
    await roll_out(world, run, rows, [prompt_of(rows[0])], trainer(**args, **more))
    (asked,) = world.engine.requests
    expected = {**args, "max_tokens": 3, "stop": ["."], "seed": 3, "chat_template_kwargs": {"think": False}}
    assert {name: asked.get(name) for name in expected} == expected


async def test_a_setting_that_the_engine_cannot_sample_with_is_refused_by_its_name(world: World, run: str) -> None:
    rows = [world.row("say a")]
    with pytest.raises(UsageError, match=r"GRPOConfig\.generation_kwargs: num_beams cannot be passed on"):
        await roll_out(world, run, rows, [prompt_of(rows[0])], trainer(generation_kwargs={"num_beams": 4}))
    assert not world.engine.requests


async def test_tokens_that_are_not_trained_on_are_warned_of(
    world: World, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    await world.add_resources("counter", Counter())
    await world.add_agent("counting", "counter")
    world.engine.drop_reasoning = True  # the template renders earlier turns again, so no turn continues another
    world.engine.turn = lambda body: say("done") if len(body["messages"]) > 2 else say(None, ("add", {"amount": 1}))
    rows = [world.row("say a", agent="counting", expected=1)]
    await roll_out(world, run, rows, [prompt_of(rows[0])])
    assert "of the sampled tokens is not trained on" in caplog.text


async def test_prompts_that_stand_for_no_row_or_for_two_are_named(world: World, run: str) -> None:
    rows = [world.row("say a")]
    with pytest.raises(UsageError, match="no row has the prompt"):
        await roll_out(world, run, rows, ["say b"])
    with pytest.raises(UsageError, match="two rows have the prompt"):
        await roll_out(world, run, [*rows, world.row("say a", other=1)], ["say a"])


MCQA = Path("workers/resources/mcqa/config.yaml")
MODEL = Path("workers/models/simulated_model/config.yaml")


def test_a_verifier_is_a_reward_function() -> None:
    reward = VerifierReward([MCQA, MODEL], "mcqa")
    try:
        rewards = reward(
            prompts=["A or B?", [{"role": "user", "content": "A or B?"}]],
            completions=["\\boxed{B}", [{"role": "assistant", "content": "\\boxed{A}"}]],
            options=[[{"A": "x"}, {"B": "y"}]] * 2,
            expected_answer=["B", "B"],
            trainer_state=object(),
        )
        assert rewards == [1.0, 0.0]
        with pytest.raises(UsageError, match="expected_answer"):
            reward(prompts=["A or B?"], completions=["A"], options=[[{"A": "x"}]], expected_answer=[3])
    finally:
        reward.close()


def test_where_a_verifier_gives_no_verdict_there_is_no_reward(tmp_path: Path) -> None:
    worker = tmp_path / "moody.py"
    worker.write_text(
        "import gymq\n\n\n"
        "class Moody(gymq.Resources[gymq.Row]):\n"
        '    """Verifies what pleases it."""\n\n'
        "    async def verify(self, request):\n"
        '        if request.reply_text == "no":\n'
        '            raise gymq.JudgeFailed("nobody there")\n'
        "        return gymq.Verdict(0.5)\n"
    )
    config = tmp_path / "config.yaml"
    config.write_text(f"moody: {{resources_servers: {{{worker}: {{entrypoint: moody.py, domain: other}}}}}}\n")
    reward = VerifierReward([config], "moody")
    try:
        assert reward(prompts=["?"] * 3, completions=["yes", "no", "yes"]) == [0.5, None, 0.5]
    finally:
        reward.close()
