"""A real environment of verifiers, asked through a rollout."""

import signal

import pytest
from gymq.workers.agents.verifiers_agent.worker import VerifiersAgent

import gymq
from gymq.testing import function_call, prompt, reply
from gymq.testing.agent_harness import AgentHarness

from .crashes import uninterrupted, with_a_crash

pytest.importorskip("verifiers", reason='needs pip install "gymq[verifiers]"')

ENV = "gymq.workers.agents.verifiers_agent.example_environment"
ROW = {"task_idx": 4, "answer": "768", **prompt("256 + 512 = ?", temperature=0.5)}


class Nobody(gymq.Resources[gymq.Row]):
    """Environments of verifiers need no resources worker."""


def adds(params):
    outputs = [item["output"] for item in params["input"] if item.get("type") == "function_call_output"]
    if outputs:
        return with_tokens(reply(outputs[-1]), [1, 2, 3, 4, 5], [6])
    return with_tokens(reply("I add.", function_call("add", {"a": 256, "b": 512})), [1, 2], [3, 4])


def with_tokens(response, asked, sampled):
    tokens = {"prompt_token_ids": asked, "generation_token_ids": sampled}
    response["output"][-1] |= tokens | {"generation_log_probs": [-0.5] * len(sampled)}
    return response


def harness(model, **options):
    return AgentHarness(VerifiersAgent, Nobody, model, {"vf_env_id": ENV, **options})


async def test_the_environments_loop_tools_and_reward_are_used():
    async with harness(adds) as running:
        verdict, response = await running.run(ROW)
    assert verdict.reward == 1.0
    kinds = [item["type"] for item in response["output"]]
    assert kinds == ["message", "function_call", "function_call_output", "message"]
    assert response["id"] == f"verifiers-{ENV}-4"
    assert (response["env_id"], response["group_id"], response["reward"]) == (ENV, "4", 1.0)
    assert response["metrics"]["is_right"] == 1.0


async def test_tokens_are_on_the_last_item_of_each_turn_and_go_back_to_the_model():
    asked = []

    def model(params):
        asked.append(params)
        return adds(params)

    async with harness(model) as running:
        _, response = await running.run(ROW)
    with_ids = {position for position, item in enumerate(response["output"]) if "generation_token_ids" in item}
    assert with_ids == {1, 3}
    assert list(response["output"][1]["prompt_token_ids"]) == [1, 2]
    assert list(response["output"][1]["generation_token_ids"]) == [3, 4]
    assert list(response["output"][3]["generation_log_probs"]) == [-0.5]
    history = [item for item in asked[1]["input"] if "generation_token_ids" in item]
    assert [list(item["generation_token_ids"]) for item in history] == [[3, 4]]


@pytest.mark.parametrize("temperature", [0.5, 0.0])
async def test_the_rows_sampling_parameters_win_over_the_options(temperature):
    asked = []
    row = {**ROW, **prompt("256 + 512 = ?", temperature=temperature)}

    def model(params):
        asked.append(params)
        return adds(params)

    async with harness(model, top_p=0.75, max_tokens=100) as running:
        await running.run(row)
    assert (asked[0]["temperature"], asked[0]["top_p"], asked[0]["max_output_tokens"]) == (temperature, 0.75, 100)


async def test_a_wrong_answer_is_worth_0():
    async with harness(lambda params: reply("700")) as running:
        assert (await running.run(ROW))[0].reward == 0.0


@pytest.mark.parametrize("empty", [reply(), reply("")])
async def test_a_reply_that_says_nothing_ends_the_episode_and_is_scored(empty):
    async with harness(lambda params: empty) as running:
        assert (await running.run(ROW))[0].reward == 0.0


async def test_a_prompt_may_have_a_developers_message_and_content_in_parts():
    asked = []

    def model(params):
        asked.append(params)
        return adds(params)

    parts = [{"type": "input_text", "text": "256 + 512 = ?"}]
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}]
    async with harness(model) as running:
        verdict, _ = await running.run(ROW | {"responses_create_params": {"input": messages}})
    assert verdict.reward == 1.0
    assert [(item["role"], item["content"]) for item in asked[0]["input"]] == [("system", "Be brief."), ("user", parts)]


async def test_a_prompt_that_chat_cannot_say_is_refused():
    messages = [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]
    async with harness(adds) as running:
        with pytest.raises(gymq.InvalidTask, match=r"input\[0\]"):
            await running.run(ROW | {"responses_create_params": {"input": messages}})


async def test_arguments_without_a_default_environment_are_for_those_that_rows_name():
    async with harness(adds, vf_env_id="", vf_env_args={"max_turns": 1}) as running:
        _, response = await running.run(ROW | {"vf_env_id": ENV})
    assert response["metrics"]["num_turns"] == 1.0


async def test_a_model_that_fails_is_a_failure_and_no_zero():
    def model(params):
        raise gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, "out of memory", retryable=False)

    async with harness(model) as running:
        with pytest.raises(gymq.RolloutError, match="out of memory"):
            await running.run(ROW)


async def test_a_prompt_that_is_too_long_ends_the_episode_and_is_scored():
    def model(params):
        if len(params["input"]) > 1:
            return reply("") | {"incomplete_details": {"reason": "max_output_tokens"}}
        return adds(params)

    async with harness(model) as running:
        assert (await running.run(ROW))[0].reward == 0.0


async def test_a_row_without_an_environment_is_refused():
    async with harness(adds, vf_env_id="") as running:
        with pytest.raises(gymq.InvalidTask, match="neither the row nor"):
            await running.run(ROW)


async def test_a_rows_environment_that_cannot_be_loaded_is_a_failure_and_no_zero():
    async with harness(adds) as running:
        with pytest.raises(gymq.ComponentFailed, match="no-such-env cannot be loaded"):
            await running.run(ROW | {"vf_env_id": "no-such-env"})


async def test_an_agent_whose_environment_cannot_be_loaded_does_not_start():
    with pytest.raises(gymq.OptionsError, match="no-such-env cannot be loaded"):
        async with harness(adds, vf_env_id="no-such-env"):
            pass


async def test_the_signals_that_end_a_worker_stay_as_they_are():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with harness(adds):
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


async def test_a_rollout_continues_after_a_crash_and_pays_no_turn_twice(bus, run):
    async with harness(adds) as running:
        expected, num_effects = await uninterrupted(running, ROW)
        for at in range(1, num_effects + 1):
            done = await with_a_crash(bus, run, running, ROW, at, hears_last=True)
            assert (done.verdict.reward, done.response["output"]) == (1.0, expected.response["output"])
            assert done.num_model_calls == expected.num_model_calls == 2
