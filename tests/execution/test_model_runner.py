"""Model workers: replies with packed tokens, or a failure of the model; judges within the time that is left."""

import asyncio
from array import array
from collections.abc import Callable
from typing import Any

import pytest

import gymq
from gymq import responses
from gymq.authoring import CurrentCall, current_call
from gymq.bus import Bus
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.serving import Server
from gymq.execution import model_runner
from gymq.execution.model_runner import BusModels, ModelRunner
from gymq.failures import JudgeFailed, RolloutError
from gymq.model import ModelRequest
from gymq.protocol import packing, subjects
from gymq.protocol.messages import FailureClass, Generate, Generated, PromptRead, ReadPrompt
from gymq.testing import reply
from tests.support.waiting import DEADLINE_S


class Scripted(gymq.Model):
    """Answers what the test says."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.answer: Callable[[], Any] = lambda: reply("hello")
        self.asked: list[ModelRequest] = []

    async def respond(self, request: ModelRequest) -> dict[str, Any]:
        self.asked.append(request)
        made: dict[str, Any] = self.answer()
        return made


@pytest.fixture
async def model(other_bus: Bus, run: str) -> Scripted:
    """A model worker named `<run>`."""
    scripted = Scripted(run)
    server = Server(other_bus, f"{run}-w")
    await server.start()
    await ModelRunner(scripted).serve(server)
    await other_bus.flush()
    return scripted


@pytest.fixture
def calls(bus: Bus) -> Calls:
    return Calls(bus)


async def generate(calls: Calls, run: str, **params: Any) -> dict[str, Any]:
    request = Generate(rollout="r/0/0", timeout_s=30.0, params={"input": [], **params}, session="s")
    async with asyncio.timeout(DEADLINE_S):
        generated = await calls.call(subjects.MODEL.of(run), request)
    assert isinstance(generated, Generated)
    return generated.response


def raises(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


def with_tokens(**members: Any) -> dict[str, Any]:
    response = reply("hello")
    response["output"][0] |= {
        "prompt_token_ids": [1, 2],
        "generation_token_ids": [3],
        "generation_log_probs": [-0.5],
        **members,
    }
    return response


async def test_a_models_reply_arrives_with_all_its_fields(calls: Calls, model: Scripted, run: str) -> None:
    model.answer = lambda: {**reply("hello"), "unknown_member": {"x": [1, 2.5, None]}}
    assert await generate(calls, run, temperature=0.3, odd={"y": 1}) == model.answer()
    assert model.asked[0].params == {"input": [], "temperature": 0.3, "odd": {"y": 1}}
    assert (model.asked[0].rollout, model.asked[0].session) == ("r/0/0", "s")


async def test_token_ids_and_log_probs_arrive_packed_and_exact(calls: Calls, model: Scripted, run: str) -> None:
    model.answer = lambda: with_tokens(generation_log_probs=[-0.1])
    item = (await generate(calls, run))["output"][0]
    assert item["prompt_token_ids"] == array("i", [1, 2])
    assert item["generation_log_probs"].tolist() == [-0.1]


async def test_long_replies_that_come_at_once_are_packed_in_rounds_of_the_event_loop_of_their_own(
    calls: Calls, model: Scripted, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[str] = []
    pack = packing.pack

    def note(response: dict[str, Any]) -> None:
        packed.append("reply")
        asyncio.get_running_loop().call_soon(packed.append, "next round")
        pack(response)

    monkeypatch.setattr(model_runner, "LONG_REPLY", 3)
    monkeypatch.setattr(packing, "pack", note)
    model.answer = with_tokens
    await asyncio.gather(*(generate(calls, run) for _ in range(20)))
    assert packed == ["reply", "next round"] * 20


async def test_the_model_knows_how_much_time_is_left(calls: Calls, model: Scripted, run: str) -> None:
    await generate(calls, run)
    assert 0 < round(model.asked[0].timeout_s, 6) <= 30.0


NONSENSE: list[tuple[Callable[[], Any], str]] = [
    (lambda: None, "invalid response from model"),
    (lambda: "text", "invalid response from model"),
    (lambda: {"output": 7}, "invalid response from model"),
    (lambda: {"output": [7]}, "invalid response from model"),
    (lambda: with_tokens(generation_token_ids=["x"]), "token ids must be 32-bit integers"),
    (lambda: with_tokens(generation_log_probs=[float("nan")]), "log probs must be finite"),
    (lambda: with_tokens(generation_log_probs=[]), "0 log probs for 1 generated tokens"),
    (lambda: {**reply("x"), "n": 2**64}, "no wire form"),
    (lambda: {**reply("x"), "t": "\ud800"}, "no wire form"),
    (raises(ValueError("bad")), "bad"),
    (raises(KeyError("choices")), "KeyError: 'choices'"),
    (raises(OSError("connection refused")), "OSError: connection refused"),
    (raises(SystemExit(1)), "SystemExit: 1"),
]


@pytest.mark.parametrize(("answer", "text"), NONSENSE)
async def test_nonsense_is_a_failure_of_the_model(
    calls: Calls, model: Scripted, run: str, answer: Callable[[], Any], text: str
) -> None:
    model.answer = answer
    with pytest.raises(RolloutError) as error:
        await generate(calls, run)
    assert error.value.failure_class is FailureClass.MODEL_FAILED
    assert text in error.value.message


async def test_a_failure_the_model_explains_arrives_as_it_is(calls: Calls, model: Scripted, run: str) -> None:
    model.answer = raises(RolloutError(FailureClass.MODEL_FAILED, "context too long", retryable=False))
    with pytest.raises(RolloutError, match="context too long") as error:
        await generate(calls, run)
    assert not error.value.retryable


async def test_a_judge_is_asked_by_name(calls: Calls, model: Scripted, run: str) -> None:
    response = await BusModels(calls).respond(run, {"input": "Is it right?"})
    assert response["output"][0]["content"][0]["text"] == "hello"
    assert model.asked[0].params["input"] == [responses.user_message("Is it right?")]


@pytest.mark.parametrize("left_s", [5.0, 5000.0])
async def test_a_judge_has_the_time_of_the_call_it_is_asked_for(
    calls: Calls, model: Scripted, run: str, left_s: float
) -> None:
    token = current_call.set(CurrentCall("r/0/0", asyncio.get_running_loop().time() + left_s))
    await BusModels(calls).respond(run, {"input": "?"})
    current_call.reset(token)
    assert max(0.0, left_s - DEADLINE_S) < model.asked[0].timeout_s <= left_s + 1e-6  # rounding
    assert model.asked[0].rollout == "r/0/0"


async def test_a_judge_is_not_asked_when_no_time_is_left(calls: Calls, model: Scripted, run: str) -> None:
    token = current_call.set(CurrentCall("r/0/0", asyncio.get_running_loop().time() - 1.0))
    with pytest.raises(JudgeFailed, match="no time left"):
        await BusModels(calls).respond(run, {"input": "?"})
    current_call.reset(token)
    assert not model.asked


@pytest.mark.parametrize("answer", [raises(ValueError("bad")), lambda: {"output": "x"}, dict])
async def test_a_judge_that_fails_is_a_failure_of_the_judge(
    calls: Calls, model: Scripted, run: str, answer: Callable[[], Any]
) -> None:
    model.answer = answer
    with pytest.raises(JudgeFailed, match=run):
        await BusModels(calls).respond(run, {"input": "?"})


async def test_a_request_that_does_not_fit_is_not_sent_to_a_judge(calls: Calls, model: Scripted, run: str) -> None:
    with pytest.raises(JudgeFailed, match="does not fit"):
        await BusModels(calls).respond(run, {})
    assert not model.asked


async def read(calls: Calls, run: str, **fields: Any) -> PromptRead:
    request = ReadPrompt(rollout="check", timeout_s=30.0, prompt=[4, 5, 6], num_log_probs=2, **fields)
    async with asyncio.timeout(DEADLINE_S):
        found = await calls.call(subjects.JUDGE.of(run), request)
    assert isinstance(found, PromptRead)
    return found


@pytest.mark.usefixtures("model")
async def test_a_model_that_reads_no_prompts_says_so(calls: Calls, run: str) -> None:
    with pytest.raises(RolloutError, match="reads no prompts") as failed:
        await read(calls, run)
    assert failed.value.retryable is False


async def test_the_log_probs_of_a_prompt_begin_where_they_are_asked_for(
    calls: Calls, run: str, model: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[dict[str, Any]] = [{"log_probs": [{}, {"5": -0.5}, {"6": -1.5, "7": -2.5}]}, {"log_probs": "none"}]

    async def read_prompt(_prompt: Any, _num: int, _timeout_s: float) -> dict[str, Any]:
        return answers.pop(0)

    monkeypatch.setattr(model, "read_prompt", read_prompt)
    assert (await read(calls, run, first=2)).log_probs == [{"6": -1.5, "7": -2.5}]
    with pytest.raises(RolloutError, match="invalid answer from model"):
        await read(calls, run)
