"""Tokens arrive as they were sampled, parameters as they were asked for."""

import json
import math
from typing import Any

import pytest

from gymq.config import load
from gymq.data.trainable import one_chain
from gymq.ext.nemo_gym.directory import directory_of
from gymq.protocol.tokens import TOKEN_FIELDS
from tests.support.engine import Body, say
from tests.support.environments import Grader
from tests.support.world import Client, World, new_client

from .trainers import nemo_rl_is_infra, nemo_rl_message_log

ADD = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}},
    "strict": False,
}


def num_tool_outputs(body: Body) -> int:
    return sum(message["role"] == "tool" for message in body["messages"])


def carriers(result: Body) -> list[int]:
    """The places of the items that carry tokens, each with all three members."""
    found = []
    for position, item in enumerate(result["response"]["output"]):
        present = [name for name in TOKEN_FIELDS if item.get(name) is not None]
        assert len(present) in (0, 3)
        if present:
            found.append(position)
    return found


async def test_the_triple_is_on_the_last_item_of_each_model_call_and_on_no_other(client: Client, world: World) -> None:
    def turn(body: Body) -> Body:
        if num_tool_outputs(body):
            return say("done", reasoning="so that is it")
        return say("let me add", ("add", {"amount": 1}), reasoning="two tools") | {
            "tool_calls": [
                {"id": f"c{number}", "type": "function", "function": {"name": "add", "arguments": '{"amount": 1}'}}
                for number in range(2)
            ]
        }

    world.engine.turn = turn
    result = await client.result(world.row(agent="adder", expected=2, params={"tools": [ADD]}))
    kinds = [item["type"] for item in result["response"]["output"]]
    assert kinds == [
        *("reasoning", "message", "function_call", "function_call"),
        *("function_call_output", "function_call_output"),
        *("reasoning", "message"),
    ]
    assert carriers(result) == [3, 7]
    assert result["reward"] == 1.0


async def test_an_empty_generation_has_no_triple(client: Client, world: World) -> None:
    world.engine.turn = lambda body: (
        say("") | {"empty": True} if num_tool_outputs(body) else say("adding", ("add", {"amount": 1}))
    )
    result = await client.result(world.row(agent="adder", params={"tools": [ADD]}))
    assert carriers(result) == [1]
    assert len(nemo_rl_message_log(result)) == 2


async def test_a_rollout_that_generated_nothing_at_all_is_an_error(client: Client, world: World) -> None:
    world.engine.turn = lambda body: say("") | {"empty": True}
    status, body = await client.run(world.row())
    assert (status, body["error"]["class"]) == (422, "no_token_ids")


def log_probs_of(completion: Body) -> list[float]:
    log_probs: list[float] = completion["choices"][0]["message"]["generation_log_probs"]
    return log_probs


@pytest.mark.parametrize("bad", [math.nan, -math.inf, "one too few"])
async def test_log_probs_that_cannot_be_trained_on_are_an_infrastructure_failure(
    client: Client, world: World, bad: object
) -> None:
    def spoil(completion: Body) -> None:
        completion["choices"][0].pop("logprobs")
        if isinstance(bad, float):
            log_probs_of(completion)[1] = bad
        else:
            log_probs_of(completion).pop()

    world.engine.spoil = spoil
    status, body = await client.run(world.row())
    assert status == 500
    assert nemo_rl_is_infra(status)
    assert body["error"]["class"] == "model_failed"


@pytest.mark.parametrize("turns", [1, 2, 7, 20])
@pytest.mark.parametrize("drop_reasoning", [False, True])
async def test_every_prompt_continues_what_came_before_it(
    client: Client, world: World, turns: int, drop_reasoning: bool
) -> None:
    """Templates that render the reasoning of earlier turns away break the prefix; one chain is kept, and it is said."""

    def turn(body: Body) -> Body:
        done = num_tool_outputs(body)
        if done < turns - 1:
            return say(f"adding {done}", ("add", {"amount": 1}), reasoning="hm" * (done + 1))
        return say("done", reasoning="well")

    world.engine.turn = turn
    world.engine.drop_reasoning = drop_reasoning
    result = await client.result(world.row(agent="adder", expected=turns - 1, params={"tools": [ADD]}))
    assert len(world.engine.requests) == turns
    log = nemo_rl_message_log(result)
    dropped = turns - 1 if drop_reasoning else 0
    assert result["gymq"]["dropped_calls"] == dropped
    assert len(log) == 2 * (turns - dropped)
    assert result["reward"] == 1.0


TOO_LONG = (400, {"error": {"message": "This model's maximum context length is 16 tokens", "code": 400}})


async def test_a_prompt_that_does_not_fit_is_the_rows_fault(client: Client, world: World) -> None:
    world.engine.turn = lambda body: TOO_LONG
    status, body = await client.run(world.row())
    assert (status, body["error"]["class"]) == (422, "prompt_too_long")
    assert not nemo_rl_is_infra(status)


async def test_a_conversation_that_grows_too_long_is_scored_as_it_is(client: Client, world: World) -> None:
    world.engine.turn = lambda body: TOO_LONG if num_tool_outputs(body) else say("adding", ("add", {"amount": 1}))
    result = await client.result(world.row(agent="adder", expected=1, params={"tools": [ADD]}))
    assert result["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert result["reward"] == 1.0
    assert carriers(result) == [1]


async def test_three_ways_of_telling_ids_give_the_same(client: Client, world: World) -> None:
    triples = []
    for style in ("message", "inline", "names"):
        world.engine.style = style
        (item,) = (await client.result(world.row("same words")))["response"]["output"]
        triples.append([item[name] for name in TOKEN_FIELDS])
    assert triples[0] == triples[1] == triples[2]
    assert triples[0][1][-1] == 2


@pytest.mark.parametrize("where", ["prompt_token_ids", "token_ids", "names"])
async def test_ways_that_disagree_are_an_infrastructure_failure(client: Client, world: World, where: str) -> None:
    def disagree(completion: Body) -> None:
        choice = completion["choices"][0]
        completion["prompt_token_ids"] = list(choice["message"]["prompt_token_ids"])
        choice["token_ids"] = list(choice["message"]["generation_token_ids"])
        if where == "names":
            choice["logprobs"]["content"][0]["token"] = "token_id:1"
        else:
            (completion if where == "prompt_token_ids" else choice)[where][0] += 1

    world.engine.spoil = disagree
    assert (await client.run(world.row()))[0] == 500


async def test_sampling_values_reach_the_engine_as_they_are(client: Client, world: World) -> None:
    train = {"temperature": 1.0, "top_p": 1.0, "max_output_tokens": 4096}
    validation = {"temperature": 0.6, "top_p": 0.95, "max_output_tokens": 8192}
    for params in (train, validation, train):
        await client.result(world.row(params=params))
    asked = [(body["temperature"], body["top_p"]) for body in world.engine.requests]
    assert asked == [(1.0, 1.0), (0.6, 0.95), (1.0, 1.0)]
    for body in world.engine.requests:
        assert body["logprobs"] is True
        assert body["top_logprobs"] == 0
        assert body.get("top_k") in (None, -1)
        assert body.get("n") in (None, 1)
        assert not body.get("stop")
        assert not body.get("stream")
        assert body["return_tokens_as_token_ids"] is True


async def test_earlier_turns_go_back_with_their_ids(client: Client, world: World) -> None:
    world.engine.turn = lambda body: say("done") if num_tool_outputs(body) else say("adding", ("add", {"amount": 1}))
    result = await client.result(world.row(agent="adder", params={"tools": [ADD]}))
    (assistant,) = [message for message in world.engine.requests[1]["messages"] if message["role"] == "assistant"]
    first = result["response"]["output"][1]
    assert [assistant[name] for name in TOKEN_FIELDS] == [first[name] for name in TOKEN_FIELDS]


async def test_extra_fields_of_the_body_reach_the_engine_and_do_not_come_back_as_parameters(
    client: Client, world: World
) -> None:
    extra = {"seed": 7, "chat_template_kwargs": {"enable_thinking": False}}
    params = {"metadata": {"extra_body": json.dumps(extra)}}
    result = await client.result(world.row(params=params))
    asked = world.engine.requests[0]
    assert asked["seed"] == 7
    assert asked["chat_template_kwargs"] == {"enable_thinking": False}
    assert result["responses_create_params"]["metadata"] == params["metadata"]
    assert "seed" not in result["responses_create_params"]
    again = {**world.row(), "responses_create_params": result["responses_create_params"]}
    assert (await client.run(again))[0] == 200


async def test_the_reason_is_in_the_log_once(client: Client, world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.engine.turn = lambda body: say("") | {"empty": True}
    for _ in range(3):
        assert (await client.run(world.row()))[0] == 422
    (warning,) = [record for record in caplog.records if "token ids" in record.getMessage()]
    assert world.name("asker") in warning.getMessage()


@pytest.mark.parametrize(
    ("asks_for_ids", "settings", "status"),
    [(False, {}, 200), (True, {}, 422), (False, {"on_untrainable": "error"}, 422)],
)
async def test_token_ids_are_missed_where_the_model_is_to_return_them(
    empty_world: World, asks_for_ids: bool, settings: Body, status: int
) -> None:
    await empty_world.add_model(return_token_id_information=False)
    await empty_world.add_resources("grader", Grader())
    await empty_world.add_agent("asker", "grader")
    empty_world.places = [{**place, "asks_for_ids": asks_for_ids} for place in empty_world.places]
    await empty_world.start_bridge(**settings)
    async with new_client(empty_world) as client:
        assert (await client.run(empty_world.row()))[0] == status


@pytest.mark.parametrize("has_options", [True, False])
def test_a_configuration_says_whose_model_returns_token_ids(has_options: bool) -> None:
    def model(**options: Any) -> Any:
        return {"responses_api_models": {"simulated_model": {"entrypoint": "worker.py", **options}}}

    def agent(name: str) -> Any:
        options = {"entrypoint": "worker.py", "model_server": {"type": "responses_api_models", "name": name}}
        options["resources_server"] = {"type": "resources_servers", "name": "mcqa"}
        return {"responses_api_agents": {"simple_agent": options}}

    tree = {"with": model(token_ids=True), "without": model(), "one": agent("with"), "other": agent("without")}
    tree["mcqa"] = {"resources_servers": {"mcqa": {"entrypoint": "worker.py", "domain": "other"}}}
    directory = directory_of(load([], initial=tree, env_yaml=None), "127.0.0.1", 11000, has_options=has_options)
    asked = {place.name: place.asks_for_ids for place in directory if place.kind == "agents"}
    assert asked == {"one": True, "other": not has_options}


async def test_who_only_evaluates_may_do_without_tokens(empty_world: World) -> None:
    await empty_world.add_model(return_token_id_information=False)
    await empty_world.add_resources("grader", Grader())
    await empty_world.add_agent("asker", "grader")
    await empty_world.start_bridge()
    async with new_client(empty_world) as client:
        row = empty_world.row()
        status, body = await client.run(row)
        assert (status, body["error"]["class"]) == (422, "no_token_ids")
        assert (await client.result(row, **{"Gymq-On-Untrainable": "allow"}))["reward"] == 1.0
        empty = await client.result(row, **{"Gymq-On-Untrainable": "empty"})
    assert empty["response"]["output"] == []
    assert empty["mask_sample"] is True
    assert empty["instance_config"]["mask_sample"] is True
    assert empty["gymq"]["failure"]["class"] == "no_token_ids"


@pytest.mark.parametrize("interleaved", [True, False])
def test_of_two_conversations_in_one_rollout_the_one_with_more_tokens_is_kept(interleaved: bool) -> None:
    def item(name: str, prompt: list[int], generation: list[int]) -> Body:
        log_probs = [-1.0] * len(generation)
        return {"name": name} | dict(zip(TOKEN_FIELDS, (prompt, generation, log_probs), strict=True))

    main = [item("a1", [1], [2, 3]), item("a2", [1, 2, 3, 4], [5])]
    other = [item("b1", [9], [8])]
    output = [main[0], *other, main[1]] if interleaved else [*other, *main]
    trainable = one_chain(output)
    assert [one["name"] for one in trainable.output if "prompt_token_ids" in one] == ["a1", "a2"]
    assert (trainable.num_calls, trainable.dropped_calls) == (2, 1)
