"""answering_agent: the environment asks, the agent brings the replies, and conversations survive their workers."""

import json
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.agents.answering_agent import worker as answering_agent
from gymq.workers.agents.answering_agent.example_environment import Sums
from gymq.workers.agents.answering_agent.worker import AnsweringAgent

import gymq
from gymq import responses
from gymq.protocol.instances import Instance
from gymq.protocol.messages import FailureClass
from gymq.testing import Harness, function_call, reply
from gymq.testing.agent_harness import AgentHarness
from tests.support import episodes

FOLDER = Path(answering_agent.__file__).parent
ROW = {"a": 3, "b": 4, "responses_create_params": {"input": [], "temperature": 0.5}}


class Counts(gymq.AskingEnvironment[gymq.Row]):
    """Asks for ten numbers in one conversation."""

    async def play(self, row: gymq.Row, policy: gymq.Policy) -> float:
        asked: list[Any] = []
        said = ""
        for number in range(10):
            asked.append(responses.user_message(f"Say {number}."))
            reply = await policy.ask({"input": asked})
            asked += reply["output"]
            said += responses.output_text(reply)
        return float(said == "0123456789")


def says(*texts: str) -> Any:
    answers = iter(texts)
    return lambda params: reply(next(answers))


async def test_what_the_environment_asks_is_the_prompt_and_what_it_says_is_between_the_replies() -> None:
    asked: list[dict[str, Any]] = []

    def model(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return reply("8" if len(asked) == 1 else "7")

    async with AgentHarness(AnsweringAgent, Sums, model) as harness:
        verdict, response = await harness.run(ROW)
    assert (verdict.reward, verdict.fields["tries"], verdict.fields["mask_sample"]) == (0.5, 2, False)
    (prompt,) = verdict.fields["responses_create_params"]["input"]
    assert prompt["content"] == "3 + 4 = ? Reply with the number only."
    assert [item.get("content") for item in response["output"]][1] == "That is wrong. Add up again."
    assert [params["temperature"] for params in asked] == [0.5, 0.5]
    assert [len(params["input"]) for params in asked] == [1, 3]


async def test_tokens_stay_with_the_agent_and_return_in_the_next_call() -> None:
    asked: list[dict[str, Any]] = []

    def model(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        answer = reply("8" if len(asked) == 1 else "7")
        tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
        answer["output"][-1] |= tokens if len(asked) == 1 else tokens | {"prompt_token_ids": [1, 2, 3]}
        return answer

    async with AgentHarness(AnsweringAgent, Sums, model) as harness:
        verdict, response = await harness.run(ROW)
    assert asked[1]["input"][1]["generation_token_ids"] == [2]
    assert [item.get("generation_token_ids") for item in response["output"]] == [[2], None, [2]]
    assert verdict.fields["mask_sample"] is False


async def test_other_conversations_are_branches() -> None:
    class Votes(gymq.AskingEnvironment[gymq.Row]):
        async def play(self, row: gymq.Row, policy: gymq.Policy) -> float:
            for number in range(2):
                await policy.ask({"input": f"Vote {number}."})
            asked = [responses.user_message("Decide.")]
            asked += (await policy.ask({"input": asked}))["output"]
            last = await policy.ask({"input": [*asked, responses.user_message("Now.")]})
            return float(responses.output_text(last))

    async with AgentHarness(AnsweringAgent, Votes, says("a", "b", "c", "1")) as harness:
        verdict, response = await harness.run({"responses_create_params": {"input": []}})
    assert verdict.reward == 1.0
    assert [responses.output_text({"output": [item]}) for item in response["output"]] == ["c", "Now.", "1"]
    assert len(verdict.fields["branches"]) == 2


async def test_two_answers_to_one_question_are_branches() -> None:
    class Twice(gymq.AskingEnvironment[gymq.Row]):
        async def play(self, row: gymq.Row, policy: gymq.Policy) -> float:
            said = [await policy.ask({"input": "Vote."}) for _ in range(2)]
            return float(responses.output_text(said[1]))

    async with AgentHarness(AnsweringAgent, Twice, says("0", "1")) as harness:
        verdict, response = await harness.run({"responses_create_params": {"input": []}})
    assert verdict.reward == 1.0
    assert (len(response["output"]), len(verdict.fields["branches"])) == (1, 1)


async def test_calls_of_tools_reach_the_environment() -> None:
    class Tools(gymq.AskingEnvironment[gymq.Row]):
        async def play(self, row: gymq.Row, policy: gymq.Policy) -> gymq.Verdict:
            tool = {
                "type": "function",
                "name": "add",
                "parameters": {"type": "object", "properties": {}},
                "strict": False,
            }
            asked: list[Any] = [responses.user_message("Add.")]
            first = await policy.ask({"input": asked, "tools": [tool]})
            (call,) = responses.function_calls(first)
            asked = [*asked, *first["output"], responses.function_call_output(call["call_id"], "7")]
            last = await policy.ask({"input": asked, "tools": [tool]})
            return gymq.Verdict(float(responses.output_text(last) == "7"), arguments=json.loads(str(call["arguments"])))

    def model(params: dict[str, Any]) -> dict[str, Any]:
        if params["input"][-1].get("type") == "function_call_output":
            return reply(params["input"][-1]["output"])
        return reply(function_call("add", {"a": 3}, "c1"))

    async with AgentHarness(AnsweringAgent, Tools, model) as harness:
        verdict, _ = await harness.run({"responses_create_params": {"input": []}})
    assert (verdict.reward, verdict.fields["arguments"]) == (1.0, {"a": 3})


async def test_an_environment_that_fails_before_it_asks_says_so() -> None:
    class Broken(gymq.AskingEnvironment[gymq.Row]):
        async def play(self, row: gymq.Row, policy: gymq.Policy) -> float:
            raise KeyError("task")

    async with AgentHarness(AnsweringAgent, Broken, says()) as harness:
        with pytest.raises(gymq.RolloutError, match=r"Broken failed to play: KeyError: 'task'") as raised:
            await harness.run({"responses_create_params": {"input": []}})
    assert raised.value.failure_class is FailureClass.VERIFIER_FAILED


async def test_an_environment_that_does_not_ask_is_refused() -> None:
    class Plain(gymq.Resources):
        async def verify(self, request: gymq.VerifyRequest) -> gymq.Verdict:
            return gymq.Verdict(1.0)

    async with AgentHarness(AnsweringAgent, Plain, says()) as harness:
        with pytest.raises(gymq.RolloutError, match="not one that answering_agent can serve"):
            await harness.run(ROW)


@pytest.mark.nightly
async def test_conversations_are_rebuilt_when_their_workers_are_killed(tmp_path: Path) -> None:
    counts = Instance("counts", "resources", f"{__name__}:Counts", {"num_workers": 2})
    rows = [episodes.row([str(number) for number in range(10)]) for _ in range(4)]
    outcomes = await episodes.played(tmp_path, counts, rows, skill=1.0, kill=True, agent="answering_agent")
    assert [(outcome.reward, outcome.attempt) for outcome in outcomes] == [(1.0, 0)] * 4  # none started over
    async with Harness(Counts) as env:
        for outcome in outcomes:
            assert (await env.verify({**rows[0], **outcome.verdict}, outcome.response)).reward == 1.0
