"""Many large results at once. `benchmarks/bridge.py --large` has the full number and the rates."""

import asyncio
from array import array

from gymq.model import Model, ModelRequest
from gymq.testing import reply
from tests.support.engine import Body
from tests.support.environments import Grader
from tests.support.world import World, new_client

TOKENS = 65_536
AT_ONCE = 12


class Lengthy(Model):
    """Answers with as many tokens as a long rollout has; the first says for which row."""

    max_concurrency = 100_000

    async def start(self) -> None:
        self._ids = array("i", range(TOKENS))
        self._log_probs = array("f", [-0.125 * (number % 64) for number in range(TOKENS)])

    async def respond(self, request: ModelRequest) -> Body:
        answer = reply("done")
        answer["output"][-1] |= {
            "prompt_token_ids": array("i", [int(request.params["user"])]),
            "generation_token_ids": self._ids,
            "generation_log_probs": self._log_probs,
        }
        return answer


async def test_results_of_a_megabyte_arrive_whole_and_all(empty_world: World) -> None:
    world = empty_world
    await world.add_model(model=Lengthy())
    await world.add_resources("grader", Grader())
    await world.add_agent("asker", "grader", skip_verification=True)
    await world.start_bridge()
    log_probs = [-0.125 * (number % 64) for number in range(TOKENS)]

    async with new_client(world) as client:

        async def one(number: int) -> None:
            result = await client.result(world.row(params={"user": str(number)}))
            (item,) = result["response"]["output"]
            assert item["prompt_token_ids"] == [number]
            assert item["generation_token_ids"] == list(range(TOKENS))
            assert item["generation_log_probs"] == log_probs

        await asyncio.gather(*(one(number) for number in range(AT_ONCE)))
