"""Trainers without an event loop, and the functions for TRL."""

import asyncio
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gymq.data.rows import RowError
from gymq.ext.trainers.trl import TRLRollouts, VerifierReward, environment_reward
from gymq.trainer import TrainerError, TrainingRun
from gymq.trainer.sync import SyncTrainingRun
from tests.support.engine import Body, say
from tests.support.environments import Counter
from tests.support.waiting import until
from tests.support.world import World

from .conftest import Examples

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


async def test_groups_come_without_an_event_loop(world: World, run: str, examples: Examples) -> None:
    def train() -> list[int]:
        with SyncTrainingRun(world.url, run, model=world.name("policy")) as training:
            return sorted(group.task_index for group in training.run_rollouts(examples(3), num_samples=2))

    assert await asyncio.to_thread(train) == [0, 1, 2]


async def test_errors_come_through(world: World, run: str) -> None:
    def train() -> None:
        with SyncTrainingRun(world.url, run) as training:
            list(training.run_rollouts([{}]))

    with pytest.raises(RowError, match="examples:1"):
        await asyncio.to_thread(train)


async def test_who_leaves_the_loop_may_continue_with_other_rows(world: World, run: str, examples: Examples) -> None:
    def train() -> int:
        with SyncTrainingRun(world.url, run) as training:
            first = training.run_rollouts(examples(4))
            next(first)
            first.close()
            return len(list(training.run_rollouts(examples(4))))

    assert await asyncio.to_thread(train) == 4


async def test_a_program_that_blocks_its_event_loop_holds_up_nothing(
    world: World, run: str, examples: Examples
) -> None:
    may_go_on = threading.Event()

    async def train() -> list[int]:
        training = await TrainingRun.connect(world.url, run, model=world.name("policy"))
        try:
            batch = training.run_rollouts(examples(2), num_samples=2)
            assert may_go_on.wait(300)  # as `loss.backward()` does
            return sorted([len(group.samples) async for group in batch])
        finally:
            await training.close()

    training = asyncio.create_task(asyncio.to_thread(asyncio.run, train()))
    try:
        await until(lambda: len(world.engine.requests) == 4)
    finally:
        may_go_on.set()
    assert await training == [2, 2]


async def test_whoever_waits_learns_that_the_run_was_closed(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    world.engine.turn = lambda body: asyncio.Event().wait()
    waiting = asyncio.create_task(anext(aiter(training.run_rollouts(examples(1)))))
    await until(lambda: world.engine.requests)
    await training.close()
    for late in (waiting, training.pause()):
        with pytest.raises(TrainerError, match="the run was closed"):
            await late


async def test_rollouts_run_while_no_caller_iterates(world: World, run: str, examples: Examples) -> None:
    may_iterate = threading.Event()

    def train() -> int:
        with SyncTrainingRun(world.url, run, model=world.name("policy")) as training:
            groups = training.run_rollouts(examples(2))
            may_iterate.wait()
            return len(list(groups))

    training = asyncio.create_task(asyncio.to_thread(train))
    try:
        await until(lambda: len(world.engine.requests) == 2)
    finally:
        may_iterate.set()
        num_groups = await training
    assert num_groups == 2


async def test_groups_of_a_run_that_is_closed_are_an_error_and_leaving_them_is_none(
    world: World, run: str, examples: Examples
) -> None:
    def train() -> None:
        with SyncTrainingRun(world.url, run, model=world.name("policy")) as training:
            left, continued, waiting = (training.run_rollouts(examples(2)) for _ in range(3))
            next(left)
            next(continued)
        left.close()
        for groups in (continued, waiting):
            with pytest.raises(TrainerError, match="the run was closed"):
                next(groups)
        with pytest.raises(TrainerError, match="the run was closed"):
            training.pause()
        training.close()

    await asyncio.to_thread(train)


async def test_a_run_that_another_thread_closes_waits_no_longer(world: World, run: str, examples: Examples) -> None:
    async def turn(body: Body) -> Body:
        await asyncio.Event().wait()
        return say("never")

    world.engine.turn = turn
    training = await asyncio.to_thread(SyncTrainingRun, world.url, run, model=world.name("policy"))
    waiting = asyncio.create_task(asyncio.to_thread(next, training.run_rollouts(examples(1))))
    await until(lambda: world.engine.requests)
    await asyncio.to_thread(training.close)
    with pytest.raises(TrainerError, match="the run was closed"):
        await waiting


# TRL ------------------------------------------------------------------------------------------------------------------


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
    with pytest.raises(TrainerError, match=r"\('say a'\) has 0 of 2 samples: .*out of order"):
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
    with pytest.raises(TrainerError, match=r"GRPOConfig\.generation_kwargs: num_beams cannot be passed on"):
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
    with pytest.raises(TrainerError, match="no row has the prompt"):
        await roll_out(world, run, rows, ["say b"])
    with pytest.raises(TrainerError, match="two rows have the prompt"):
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
        with pytest.raises(TrainerError, match="expected_answer"):
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
