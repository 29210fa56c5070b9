"""Replies that an engine ended are continued token by token, or asked for again, with the versions of their tokens."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from gymq.workers.models.vllm_model import weight_versions, whole
from gymq.workers.models.vllm_model.generate import GENERATE
from gymq.workers.models.vllm_model.halves import COMPLETIONS, continuation, was_ended
from gymq.workers.models.vllm_model.sampler import Sampler
from gymq.workers.models.vllm_model.weight_versions import EngineVersions, named, stretches
from gymq.workers.models.vllm_model.whole import AskedWhole

import gymq
from gymq.protocol.tokens import VERSIONS_FIELD

Answer = dict[str, Any]


def completion(ids: list[int], finish_reason: str = "stop", *, prompt: int = 2) -> Answer:
    choice = {
        "text": "".join(map(chr, ids)),
        "token_ids": ids,
        "prompt_token_ids": list(range(prompt)),
        "logprobs": {"tokens": [f"token_id:{one}" for one in ids], "token_logprobs": [-0.5] * len(ids)},
        "finish_reason": finish_reason,
    }
    usage = {"prompt_tokens": prompt, "completion_tokens": len(ids), "total_tokens": prompt + len(ids)}
    return {"choices": [choice], "usage": usage}


def generated(ids: list[int], finish_reason: str = "stop", version: str = "default") -> Answer:
    meta = {
        "id": "g",
        "finish_reason": {"type": finish_reason},
        "prompt_tokens": 2,
        "completion_tokens": len(ids),
        "output_token_logprobs": [[-0.5, one, None] for one in ids],
        "weight_version": version,
    }
    return {"text": "".join(map(chr, ids)), "output_ids": ids, "meta_info": meta}


class Scripted:
    """An engine that gives answers in turn, and does what the test wants before each."""

    engine_name = "http://engine"

    def __init__(self, versions: EngineVersions, *answers: tuple[str, Answer]) -> None:
        self.bodies: list[Mapping[str, Any]] = []
        self._versions = versions
        self._answers = list(answers)

    async def post(self, _path: str, body: Mapping[str, Any], _num_known: int = 0) -> Answer:
        self.bodies.append(body)
        version, answer = self._answers.pop(0)
        self._versions.announced = version  # while it was answered
        return answer

    async def native(self, path: str, body: Mapping[str, Any]) -> Answer:
        return await self.post(path, body)

    async def sampler(self) -> Sampler:
        raise NotImplementedError

    async def tokenize(self, body: Mapping[str, Any]) -> Answer:
        raise NotImplementedError

    def excerpt(self, text: str) -> str:
        return text


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "FIRST_PAUSE_S", 0.0)


async def asked(*answers: tuple[str, Answer]) -> tuple[AskedWhole, Scripted]:
    versions = EngineVersions()
    versions.announced = answers[0][0]
    engine = Scripted(versions, *answers)
    return AskedWhole(engine, versions, asyncio.get_running_loop().time() + 60.0), engine


async def test_a_part_is_continued_behind_its_tokens_and_each_token_keeps_its_version() -> None:
    first, second = ("v1", completion([65, 66], "abort")), ("v1", completion([67], "aborted", prompt=4))
    ask, engine = await asked(first, second, ("v1", completion([68, 69], prompt=5)))
    answer = await ask.post(COMPLETIONS, {"prompt": "text", "max_tokens": 9, "min_tokens": 3})
    assert [body["prompt"] for body in engine.bodies] == ["text", [0, 1, 65, 66], [0, 1, 2, 3, 67]]
    assert [(body["max_tokens"], body["min_tokens"]) for body in engine.bodies] == [(9, 3), (7, 1), (6, 0)]
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("ABCDE", "stop")
    assert (choice["prompt_token_ids"], choice["token_ids"]) == ([0, 1], [65, 66, 67, 68, 69])
    assert choice["logprobs"]["token_logprobs"] == [-0.5] * 5
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 5, "total_tokens": 7}
    assert ask.versions == ["v1"]


def message_of(ask: AskedWhole, num_tokens: int) -> dict[str, Any]:
    reply: dict[str, Any] = {"choices": [{"message": {"generation_token_ids": [1] * num_tokens}}]}
    ask.put_versions_on(reply)
    message: dict[str, Any] = reply["choices"][0]["message"]
    return message


async def test_parts_of_two_policies_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    engine_of_v1 = ("v1", completion([65, 66], "abort"))
    ask, engine = await asked(engine_of_v1, ("v2", completion([67, 68, 69], prompt=4)))
    engine._versions.announced = "v1"

    async def announced(_number: int) -> None:
        engine._versions.announced = "v2"  # while the engine was paused

    monkeypatch.setattr(ask, "_pause", announced)
    await ask.post(COMPLETIONS, {"prompt": [0, 1]})
    assert ask.versions == ["v1", "v2"]
    assert message_of(ask, 5)[VERSIONS_FIELD] == [["v1", 2], ["v2", 3]]
    assert VERSIONS_FIELD not in message_of(ask, 4)


async def test_tokens_that_either_policy_may_have_sampled_have_no_version() -> None:
    ask, _ = await asked(("v1", completion([65, 66], "abort")), ("v2", completion([67], prompt=4)))
    await ask.post(COMPLETIONS, {"prompt": [0, 1]})  # the version was announced during the second request
    assert ask.versions == ["v1", "v2"]
    assert VERSIONS_FIELD not in message_of(ask, 3)


async def test_what_sglang_generates_is_continued() -> None:
    ask, engine = await asked(("", generated([65], "abort", "7")), ("", generated([66, 67], version="7")))
    answer = await ask.native(GENERATE, {"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 5, "top_p": 0.9}})
    assert [body["input_ids"] for body in engine.bodies] == [[1, 2], [1, 2, 65]]
    assert engine.bodies[1]["sampling_params"] == {"max_new_tokens": 4, "top_p": 0.9}
    assert (answer["text"], answer["output_ids"]) == ("ABC", [65, 66, 67])
    meta = answer["meta_info"]
    assert [token for _, token, _ in meta["output_token_logprobs"]] == [65, 66, 67]
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (2, 3)
    assert ask.versions == ["7"]


def chat(finish_reason: str, text: str = "x") -> Answer:
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}]}


async def test_a_chat_is_asked_for_again_and_has_the_version_of_its_last_answer() -> None:
    ask, engine = await asked(("v1", chat("abort")), ("v1", chat("abort")), ("v1", chat("stop", "whole")))
    assert (await ask.post("/chat/completions", {"messages": []}))["choices"][0]["message"]["content"] == "whole"
    assert engine.bodies == [{"messages": []}] * 3
    assert ask.versions == ["v1"]


@pytest.mark.parametrize(
    "settings", [{"presence_penalty": 0.5}, {"frequency_penalty": 1.0}, {"n": 2}, {"max_tokens": 2}]
)
def test_what_would_be_sampled_in_another_way_is_asked_for_again(settings: dict[str, Any]) -> None:
    assert continuation(COMPLETIONS, {"prompt": [0, 1], **settings}, completion([65, 66], "abort")) is None


@pytest.mark.parametrize("missing", ["token_ids", "prompt_token_ids", "logprobs"])
def test_a_part_without_its_tokens_is_asked_for_again(missing: str) -> None:
    part = completion([65, 66], "abort")
    del part["choices"][0][missing]
    assert continuation(COMPLETIONS, {"prompt": [0, 1]}, part) is None
    assert continuation("/chat/completions", {"messages": []}, chat("abort")) is None


async def test_an_engine_that_ends_every_request_is_given_up() -> None:
    ask, engine = await asked(*[("v1", chat("abort"))] * whole.MAX_PARTS)
    with pytest.raises(gymq.RolloutError, match=f"the engine ended the request {whole.MAX_PARTS} times"):
        await ask.post("/chat/completions", {"messages": []})
    assert len(engine.bodies) == whole.MAX_PARTS


async def test_no_request_is_asked_again_behind_its_deadline() -> None:
    versions = EngineVersions()
    ask = AskedWhole(Scripted(versions, ("", chat("abort"))), versions, asyncio.get_running_loop().time())
    with pytest.raises(gymq.RolloutError, match="no time left to ask again") as raised:
        await ask.post("/chat/completions", {"messages": []})
    assert raised.value.failure_class == gymq.FailureClass.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    "answer",
    [{}, {"choices": None}, {"choices": 3}, {"choices": ["x"]}, {"meta_info": {"finish_reason": None}}, chat("stop")],
)
def test_other_answers_are_whole(answer: Answer) -> None:
    assert not was_ended(answer)


async def test_what_a_reply_names_wins_over_what_was_announced() -> None:
    versions = EngineVersions()
    versions.announced = "step-1"

    async def of(version: Any) -> list[str]:
        before = await versions.before("a", None)
        return await versions.of_answer("a", None, before, {"metadata": {"weight_version": version}})

    assert await of("default") == ["step-1"]
    assert await of("7") == ["7"]
    assert await of(8) == ["7", "8"]  # the engine got its weights at some time since its last reply
    assert await of("8") == ["8"]
    assert versions.told == ["8"]
    assert [named(one) for one in ("default", None, 3, "x" * 201, "a\nb", "v1")] == ["", "", "3", "", "", "v1"]


class Told:
    """What an engine says of its weights at a path."""

    def __init__(self, path: str, version: str) -> None:
        self.path = path
        self.version = version
        self.asked: list[str] = []

    async def get(self, path: str, _max_bytes: int) -> tuple[int, bytes]:
        self.asked.append(path)
        if path != self.path:
            return 404, b"{}"
        return 200, b'{"weight_version": "%s"}' % self.version.encode()


@pytest.mark.parametrize("path", ["/model_info", "/get_model_info", "/weight_info"])
async def test_an_engine_is_asked_where_its_replies_name_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_versions, "LOOK_EVERY_S", 0.0)
    versions, engine = EngineVersions(), Told(path, "v1")

    async def of(after: str) -> list[str]:
        before = await versions.before("a", engine.get)
        engine.version = after
        return await versions.of_answer("a", engine.get, before, {})

    assert await of("v1") == ["v1"]
    assert await of("v2") == ["v1", "v2"]  # it changed during the request
    engine.version = "v3"
    assert await of("v3") == ["v3"]  # it changed before
    assert await of("default") == [""]
    assert set(engine.asked[-2:]) == {path}


async def test_an_engine_that_names_nothing_is_asked_rarely_and_one_that_does_not_answer_harms_nothing() -> None:
    versions, engine = EngineVersions(), Told("/elsewhere", "v1")
    versions.announced = "step-1"

    async def broken(_path: str, _max_bytes: int) -> tuple[int, bytes]:
        raise OSError("reset")

    for _ in range(3):
        before = await versions.before("a", engine.get)
        assert await versions.of_answer("a", engine.get, before, {}) == ["step-1"]
        before = await versions.before("b", broken)
        assert await versions.of_answer("b", broken, before, {}) == ["step-1"]
    assert engine.asked == ["/model_info", "/get_model_info", "/weight_info"]
    assert versions.told == []


def test_stretches_of_one_version_are_one() -> None:
    assert stretches([(["v1"], 2), (["v1"], 1), (["v2"], 3), (["v2"], 0)]) == [["v1", 3], ["v2", 3]]
    assert stretches([(["v1"], 2), (["v1", "v2"], 1)]) is None
    assert stretches([([""], 2), (["v2"], 1)]) is None
