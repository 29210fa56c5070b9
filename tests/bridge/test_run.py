"""`/run`: a row goes in, its verified rollout comes out."""

from .world import Client, World


async def test_a_row_comes_back_with_its_response_and_reward(client: Client, world: World) -> None:
    result = await client.result(world.row("hello", verdict={"reward": 0.5}))
    assert result["reward"] == 0.5
    assert [item["content"][0]["text"] for item in result["response"]["output"]] == ["done"]
    assert result["responses_create_params"] == {"input": [{"role": "user", "content": "hello"}]}
