"""Programs of agents on the nodes of a Ray cluster ask the model from there."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import gymq
from gymq.ext.ray import Ray
from gymq.testing import prompt, reply
from gymq.testing.agent_harness import AgentHarness
from tests.support.asking_program import PROGRAM
from tests.support.waiting import until

from .test_place import FAMILY, is_gone
from .test_place import cluster as cluster

gateway = pytest.importorskip("gymq.ext.gateway")


class Asks(gymq.Agent):
    """A program on a node asks twice; `then` is what the shell does after it."""

    class Options(gymq.AgentOptions):
        then: str = "true"

    async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
        capture, place = gateway.Capture(rollout), Ray()
        async with (
            place,
            gateway.Gateway(await place.gateway_host()) as opened,
            opened.admit(rollout.id, capture.ask) as admission,
        ):
            await place.write("program.py", PROGRAM.encode())
            script = f"python3 program.py && {self.options.then}"
            ended = await capture.watch(place.run(script, wall_s=rollout.time_left(), env=admission.env))
        assert ended.exit_status == 0, ended.last_words
        rollout.output = list(capture.conversation().output)
        async with rollout.session() as session:
            return await session.verify(rollout.response)


class Primes(gymq.Resources[gymq.Row]):
    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        return gymq.Verdict(float("7" in request.reply_text))


async def test_a_program_asks_the_model_through_the_gateway_and_what_it_said_is_verified(cluster: Any) -> None:
    answers = iter(("9", "7"))
    async with AgentHarness(Asks, Primes, lambda params: reply(next(answers))) as harness:
        verdict, response = await harness.run(prompt("?"))
    assert verdict.reward == 1.0
    assert [item["role"] for item in response["output"]] == ["assistant", "user", "assistant"]


async def test_a_node_that_is_lost_is_a_failure_and_no_reward(cluster: Any, tmp_path: Path) -> None:
    (first,) = cluster.worker_nodes
    doomed = cluster.add_node(num_cpus=2, object_store_memory=80 << 20)
    family = tmp_path / "pids"
    cluster.remove_node(first)
    options = {"then": FAMILY.format(family)}
    try:
        async with AgentHarness(Asks, Primes, lambda params: reply("7"), options) as harness:
            running = asyncio.create_task(harness.run(prompt("?")))
            await until(family.exists)
            await asyncio.to_thread(cluster.remove_node, doomed, allow_graceful=False)
            with pytest.raises(gymq.ComponentFailed, match="Ray lost the actor"):
                await running
        await until(lambda: is_gone(family))
    finally:
        cluster.add_node(num_cpus=2, object_store_memory=80 << 20)
