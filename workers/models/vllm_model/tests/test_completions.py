"""Base models behind /v1/completions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.models.openai_model.tests.mock_server import MockServer, as_json
from gymq.workers.models.vllm_model.tests.conftest import Start, ask, failure

import gymq

USER = {"role": "user", "content": "2 + 2 ="}
TOKENS = {"prompt_token_ids": [1, 2, 3], "generation_token_ids": [11, 12], "generation_log_probs": [-0.5, -0.25]}


def continued(text: str, **choice: Any) -> dict[str, Any]:
    """A completion of a text as vLLM sends it."""
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1750000000,
        "model": "served",
        "choices": [{"index": 0, "text": text, "finish_reason": "stop", "logprobs": None, **choice}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


LOGPROBS = {
    "tokens": ["token_id:11", "token_id:12"],
    "token_logprobs": [-0.5, -0.25],
    "top_logprobs": [],
    "text_offset": [0, 1],
}


async def test_the_text_of_the_messages_is_the_prompt_and_what_follows_the_reply(
    start: Start, server: MockServer
) -> None:
    server.answers = [as_json(continued(" 4"))]
    shots = [{"role": "system", "content": "1 + 1 = 2"}, {"role": "user", "content": [_text("2 + "), _text("2 =")]}]
    reply = await ask(await start(use_completions_api=True), input=shots, temperature=0.5, max_output_tokens=3)
    (asked,) = server.asked
    assert asked.target == "/v1/completions"
    assert asked.body == {"model": "served", "prompt": "1 + 1 = 2\n2 + 2 =", "temperature": 0.5, "max_tokens": 3}
    assert reply["output"][0]["content"][0]["text"] == " 4"
    assert reply["usage"]["total_tokens"] == 5


def _text(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}


async def test_pins_and_extra_fields_are_sent(start: Start, server: MockServer) -> None:
    server.answers = [as_json(continued(" 4"))]
    worker = await start(use_completions_api=True, extra_body={"stop": ["\n"]}, sampling_overrides={"temperature": 0.0})
    await ask(worker, input=[USER], temperature=0.9)
    assert (server.asked[0].body["stop"], server.asked[0].body["temperature"]) == (["\n"], 0.0)


async def test_a_text_that_was_cut_off_is_an_incomplete_reply(start: Start, server: MockServer) -> None:
    server.answers = [as_json(continued(" 4", finish_reason="length"))]
    reply = await ask(await start(use_completions_api=True))
    assert reply["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_an_overflow_is_an_incomplete_reply(start: Start, server: MockServer) -> None:
    server.answers = [as_json({"message": "maximum context length is 8 tokens"}, "400 Bad Request")]
    reply = await ask(await start(use_completions_api=True))
    assert reply["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_ids_come_from_names_and_the_tokenizer_of_the_engine(start: Start, server: MockServer) -> None:
    server.answers = [as_json(continued(" 4", logprobs=LOGPROBS)), as_json({"tokens": [1, 2, 3]})]
    reply = await ask(await start(use_completions_api=True, return_token_id_information=True), input=[USER])
    assert {name: list(reply["output"][-1][name]) for name in TOKENS} == TOKENS
    completions, tokenize = server.asked
    assert (completions.body["logprobs"], completions.body["return_tokens_as_token_ids"]) == (0, True)
    assert (tokenize.target, tokenize.body) == ("/tokenize", {"model": "served", "prompt": "2 + 2 ="})


async def test_ids_in_the_reply_save_the_second_call(start: Start, server: MockServer) -> None:
    server.answers = [as_json(continued(" 4", logprobs=LOGPROBS, token_ids=[11, 12], prompt_token_ids=[1, 2, 3]))]
    worker = await start(
        use_completions_api=True, return_token_id_information=True, request_prompt_and_generation_token_ids=True
    )
    reply = await ask(worker, input=[USER])
    assert {name: list(reply["output"][-1][name]) for name in TOKENS} == TOKENS
    assert (len(server.asked), server.asked[0].body["return_token_ids"]) == (1, True)


async def test_the_engine_renders_its_template_to_tokens_that_are_then_continued(
    start: Start, server: MockServer
) -> None:
    server.answers = [as_json({"tokens": [1, 2, 3]}), as_json(continued(" 4", logprobs=LOGPROBS))]
    worker = await start(
        use_completions_api=True,
        render_chat_template=True,
        return_token_id_information=True,
        chat_template_kwargs={"short": True},
    )
    reply = await ask(worker, input=[USER])
    rendered, completions = server.asked
    assert rendered.body == {"model": "served", "messages": [USER], "chat_template_kwargs": {"short": True}}
    assert completions.body["prompt"] == [1, 2, 3]
    assert {name: list(reply["output"][-1][name]) for name in TOKENS} == TOKENS


async def test_a_tokenizer_of_its_own_renders_without_the_engine(
    start: Start, server: MockServer, tmp_path: Path
) -> None:
    pytest.importorskip("transformers", reason="pip install 'gymq[chat-template]'")
    _write_tokenizer(tmp_path)
    server.answers = [as_json(continued(" 4"))]
    worker = await start(use_completions_api=True, render_chat_template=True, tokenizer=str(tmp_path))
    await ask(worker, input=[USER])
    (asked,) = server.asked
    assert asked.body["prompt"] == [1, 2, 3, 2, 4, 5]
    refused = await failure(worker, input=[{"role": "system", "content": "no"}])
    assert refused.failure_class is gymq.FailureClass.INVALID_TASK
    assert "only users" in refused.message


def _write_tokenizer(folder: Path) -> None:
    vocabulary = {"<unk>": 0, "<user>": 1, "2": 2, "+": 3, "=": 4, "<assistant>": 5}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
    tokenizer = {"version": "1.0", "model": model, "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    template = (
        "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('only users') }}{% endif %}"
        "<{{ m.role }}> {{ m.content }} {% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


async def test_a_tokenizer_that_is_not_there_is_told_at_the_start(start: Start, tmp_path: Path) -> None:
    with pytest.raises(gymq.OptionsError, match="tokenizer: "):
        await start(use_completions_api=True, render_chat_template=True, tokenizer=str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"tools": [{"type": "function", "name": "f", "parameters": {}, "strict": None}]}, "tools"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://a"}]}]}, "messages[0]"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "3"}]}, "messages[0]"),
    ],
)
async def test_what_plain_text_cannot_say_is_refused(
    start: Start, server: MockServer, params: dict[str, Any], path: str
) -> None:
    found = await failure(await start(use_completions_api=True), **params)
    assert found.failure_class is gymq.FailureClass.INVALID_TASK
    assert path in found.message
    assert not server.asked


@pytest.mark.parametrize(
    "answer",
    [
        {"choices": []},
        {"choices": [{"message": {"content": "chat"}}]},
        continued("a", logprobs={"tokens": ["token_id:1"], "token_logprobs": []}),
    ],
)
async def test_nonsense_is_told(start: Start, server: MockServer, answer: dict[str, Any]) -> None:
    server.answers = [as_json(answer)]
    found = await failure(await start(use_completions_api=True))
    assert found.failure_class is gymq.FailureClass.MODEL_FAILED
    assert "unusable reply: choices" in found.message
