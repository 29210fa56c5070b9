"""Groups for OpenPipe ART: its own types read them, and find the tokens, log probs and rewards of the store."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gymq.ext.trainers.art import trajectory_group
from gymq.trainer import TrainingRun
from gymq.trainer.examples import place_of
from gymq.trainer.groups import Group
from tests.support.engine import Body, say
from tests.support.environments import Counter
from tests.support.world import World

PYTHON = os.environ.get("GYMQ_ART_PYTHON", "")
READER = Path(__file__).with_name("art_reader.py")
MODEL = "my-model"


@pytest.fixture
async def groups(world: World, training: TrainingRun) -> list[Group]:
    """A plain group, a masked one, one that fails, and conversations with a tool: the last are rendered again."""

    def turn(body: Body) -> Body:
        if not body.get("tools") or body["messages"][-1]["role"] == "tool":
            return say("done")
        return say(None, ("add", {"amount": 2}), reasoning="so much")

    world.engine.turn = turn
    await world.add_resources("counter", Counter())
    await world.add_agent("counting", "counter")
    tools = [{"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}]
    counting: dict[str, Any] = {"agent": "counting", "params": {"tools": tools}, "start": 1, "expected": 3}
    found = []
    rows = [
        world.row("say done"),
        world.row("say done", verdict={"mask_sample": True}),
        world.row("say done", verdict={"fails": {"class": "invalid_task"}}),
        world.row("count", **counting),
    ]
    for index, row in enumerate(rows):
        found += [group async for group in training.run_rollouts([row | {"_ng_task_index": index}], num_samples=2)]
    world.engine.drop_reasoning = True
    row = world.row("count", **counting) | {"_ng_task_index": len(rows)}
    return found + [group async for group in training.run_rollouts([row], num_samples=2)]


@pytest.mark.skipif(not PYTHON, reason="GYMQ_ART_PYTHON names no Python with ART; `make test-in NAME=art` sets it")
async def test_art_reads_the_tokens_log_probs_and_rewards_that_are_stored(groups: list[Group]) -> None:
    text = json.dumps([trajectory_group(group, MODEL) for group in groups])
    command: Any = [PYTHON, str(READER), MODEL]
    done = await asyncio.to_thread(subprocess.run, command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    assert [len(group.samples) for group in groups] == [2, 2, 0, 2, 2]
    for group, found in zip(groups, read, strict=True):
        assert found["rewards"] == group.rewards
        named = [[one.failure_class, f"the row ({place_of(group.example)}): {one.message}"] for one in group.failures]
        assert found["exceptions"] == named
        for sample, histories in zip(group.samples, found["histories"], strict=True):
            records = sample.records()
            assert len(histories) == len(records)
            for record, history in zip(records, histories, strict=True):
                assert history["exact"]
                assert history["tokens"] == record.token_ids
                assert history["sampled"] == [one * (not record.mask) for one in record.is_sampled()]
                assert history["log_probs"] == [0.0 if record.mask else one for one in record.log_probs]
    assert len(read[3]["histories"][0]) == 1
    assert sum(map(sum, (one["sampled"] for one in read[1]["histories"][0]))) == 0
    assert len(read[4]["histories"][0]) == 2


async def test_each_call_of_a_conversation_is_an_exchange_behind_the_one_before(groups: list[Group]) -> None:
    (trajectory, _) = trajectory_group(groups[3], MODEL)["trajectories"]
    first, second = (one["response"]["choices"][0] for one in trajectory["exchanges"]["chat_completions"])
    sequence = first["prompt_token_ids"] + first["token_ids"]
    assert second["prompt_token_ids"][: len(sequence)] == sequence
    assert trajectory["reward"] == 1.0
