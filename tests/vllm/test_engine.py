"""The engine in the worker: answers, tokens, chains, limits and ends of requests."""

from __future__ import annotations

import asyncio
import gc
import json
from array import array
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import pytest
from gymq.workers.models.local_vllm_model import asgi
from gymq.workers.models.local_vllm_model.worker import LocalVLLMModel

import gymq
from gymq import responses
from gymq.errors import GymqError
from gymq.model import ModelMemory
from tests.support.waiting import until

from .tiny_policy import ADD, MAX_MODEL_LEN, asked, engine_of, options

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

CHAT = "/v1/chat/completions"
ENDLESS: dict[str, Any] = {"max_output_tokens": 400, "metadata": {"extra_body": json.dumps({"ignore_eos": True})}}


def text_of(reply: dict[str, Any]) -> str:
    return responses.output_text(reply)


async def settled(model: LocalVLLMModel, num_running: int) -> None:
    """Wait until the engine works on so many requests."""
    await until(lambda: (load := model.load()) is not None and load.running == num_running and not load.waiting)


async def num_running_beside(model: LocalVLLMModel) -> int:
    """How many other requests the engine's scheduler runs, as it says itself while it runs a new one."""
    running: list[int] = []

    async def watch() -> None:
        while True:
            running.append(engine_of(model).recorder.running)
            await asyncio.sleep(0.002)

    watching = asyncio.create_task(watch())
    await model.respond(asked("What is 1 + 1?", **ENDLESS))
    watching.cancel()
    # The first figures may be older than the request, the last are of the time after it.
    return [number for number in running if number][-1] - 1


async def test_the_policy_answers(model: LocalVLLMModel) -> None:
    reply = await model.respond(asked("What is 3 + 4?", temperature=0.0))
    assert reply["status"] == "completed"
    assert text_of(reply).startswith("\\boxed{")


async def test_a_reply_carries_its_tokens_and_their_log_probs(model: LocalVLLMModel) -> None:
    reply = await model.respond(asked("What is 3 + 4?"))
    item = reply["output"][-1]
    tokenizer = engine_of(model)._tokenizer
    assert tokenizer.decode(item["prompt_token_ids"]).endswith("What is 3 + 4?<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.decode(item["generation_token_ids"], skip_special_tokens=True) == text_of(reply)
    assert len(item["generation_log_probs"]) == len(item["generation_token_ids"]) == reply["usage"]["output_tokens"]
    assert all(log_prob <= 0.0 for log_prob in item["generation_log_probs"])


async def test_a_tool_call_is_parsed_and_the_next_prompt_begins_with_what_was_sampled(model: LocalVLLMModel) -> None:
    first = await model.respond(asked("What is 3 + 4?", tools=[ADD], temperature=0.0))
    (call,) = responses.function_calls(first)
    assert json.loads(call["arguments"] or "") == {"a": 3, "b": 4}
    history = [
        responses.user_message("What is 3 + 4?"),
        *first["output"],
        responses.function_call_output(call["call_id"], "7"),
    ]
    second = await model.respond(asked(history, tools=[ADD], temperature=0.0))
    sampled = first["output"][-1]
    known = [*sampled["prompt_token_ids"], *sampled["generation_token_ids"]]
    prompt = list(second["output"][-1]["prompt_token_ids"])
    assert prompt[: len(known)] == known
    assert (
        engine_of(model)
        ._tokenizer.decode(prompt[len(known) :])
        .endswith("<|im_start|>tool\n7<|im_end|>\n<|im_start|>assistant\n")
    )
    assert text_of(second) == "\\boxed{7}"


async def test_a_tool_that_is_chosen_by_name_is_called(model: LocalVLLMModel) -> None:
    choice = {"type": "function", "name": "add"}
    reply = await model.respond(asked("Say hello.", tools=[ADD], tool_choice=choice, temperature=0.0))
    (call,) = responses.function_calls(reply)
    assert (call["name"], json.loads(call["arguments"] or "").keys()) == ("add", {"a", "b"})
    assert len(reply["output"][-1]["generation_token_ids"]) == reply["usage"]["output_tokens"]


async def test_a_later_prompt_keeps_tokens_that_its_text_would_not_give(model: LocalVLLMModel) -> None:
    tokenizer = engine_of(model)._tokenizer
    first = await model.respond(asked("What is 3 + 4?", temperature=0.0))
    item = first["output"][-1]
    # The same text, spelt in single bytes: no tokenizer would write it like this.
    spelt = [tokenizer.encode(character, add_special_tokens=False)[0] for character in text_of(first)]
    spelt.append(tokenizer.eos_token_id)
    assert spelt != list(item["generation_token_ids"])
    item |= {"generation_token_ids": spelt, "generation_log_probs": [0.0] * len(spelt)}
    history = [responses.user_message("What is 3 + 4?"), item, responses.user_message("What is 1 + 1?")]
    second = await model.respond(asked(history))
    known = [*item["prompt_token_ids"], *spelt]
    assert list(second["output"][-1]["prompt_token_ids"])[: len(known)] == known


async def test_a_history_that_the_agent_changed_is_not_brought_back(model: LocalVLLMModel) -> None:
    first = await model.respond(asked("What is 3 + 4?", temperature=0.0))
    history = [responses.user_message("What is 5 + 5?"), *first["output"], responses.user_message("What is 1 + 1?")]
    second = await model.respond(asked(history))
    assert "5 + 5" in engine_of(model)._tokenizer.decode(second["output"][-1]["prompt_token_ids"])


BODIES: dict[str, dict[str, Any]] = {
    "text": {},
    "a seed": {"temperature": 1.0, "seed": 7},
    "a stop string": {"stop": ["}"], "include_stop_str_in_output": True},
    "special tokens": {"skip_special_tokens": False},
    "cut off": {"max_tokens": 3},
    "a bias": {"logit_bias": {"5": 50.0}, "max_tokens": 8},
    "a schema": {"response_format": {"type": "json_object"}, "max_tokens": 20},
    "more tokens than there is room for": {"max_tokens": 99_999, "ignore_eos": True},
    "a tool": {"tools": [{"type": "function", "function": {"name": "add", "parameters": ADD["parameters"]}}]},
    "no tool wanted": {
        "tools": [{"type": "function", "function": {"name": "add", "parameters": ADD["parameters"]}}],
        "tool_choice": "none",
    },
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_direct_call_answers_as_the_application_does(
    model: LocalVLLMModel, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(model)
    body = {
        "model": model.options.model,
        "messages": [{"role": "system", "content": "Add."}, {"role": "user", "content": "What is 3 + 4?"}],
        "temperature": 0.0,
        "max_tokens": 40,
        "logprobs": True,
        "top_logprobs": 0,
        "return_token_ids": True,
        **BODIES[name],
    }
    status, direct = await engine.post(CHAT, body)
    assert status == 200
    monkeypatch.setattr(engine, "_direct", None)
    status, answer = await engine.post(CHAT, body)
    assert status == 200
    assert isinstance(direct["choices"][0]["message"]["prompt_token_ids"], array)  # the application gives JSON
    (choice,), (expected,) = direct["choices"], answer["choices"]
    message, expected_message = choice["message"], expected["message"]
    assert list(message["prompt_token_ids"]) == answer["prompt_token_ids"]
    assert message["generation_token_ids"] == expected["token_ids"]
    log_probs = [entry["logprob"] for entry in expected["logprobs"]["content"]]
    assert message["generation_log_probs"] == pytest.approx(log_probs, abs=1e-4)
    assert message["content"] == expected_message["content"]
    assert message["generation_policy_versions"] == expected_message["generation_policy_versions"]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    assert calls == [call["function"] for call in expected_message.get("tool_calls") or ()]
    assert choice["finish_reason"] == expected["finish_reason"]
    for field in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert direct["usage"][field] == answer["usage"][field]


async def test_a_turn_renders_what_is_new_in_it(model: LocalVLLMModel, monkeypatch: pytest.MonkeyPatch) -> None:
    direct, application = engine_of(model)._direct, asgi.post
    rendered: list[int] = []
    asked_application: list[str] = []

    async def spy(settings: Any, messages: list[Any]) -> list[int]:
        rendered.append(len(messages))
        return await type(direct).rendered(direct, settings, messages)

    async def spy_on_application(app: Any, path: str, body: Any) -> tuple[int, bytes]:
        asked_application.append(path)
        return await application(app, path, body)

    monkeypatch.setattr(direct, "rendered", spy)
    monkeypatch.setattr(asgi, "post", spy_on_application)
    items: list[dict[str, Any]] = []
    kept, known = None, list[int]()
    for turn in range(8):
        items = [*items, responses.user_message(f"What is {turn} + 1?")]
        rendered.clear()
        request = replace(asked(items, max_output_tokens=8), memory=ModelMemory(kept))
        reply = await model.respond(request)
        kept = request.memory.kept
        item = reply["output"][-1]
        prompt = list(item["prompt_token_ids"])
        assert prompt[: len(known)] == known
        whole = list((await model.respond(asked(items, max_output_tokens=8)))["output"][-1]["prompt_token_ids"])
        assert prompt == whole
        if turn >= 2:
            assert rendered[:1] == [3]  # a placeholder, the reply, what is new
        known = [*prompt, *item["generation_token_ids"]]
        items = [*items, *reply["output"]]
    assert not asked_application


# As in Phi: a conversation after which no reply begins has an end of its own; and in GLM: roles end the turn before.
TEMPLATES = {
    "phi": "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant {% else %}{{ eos_token }}{% endif %}",
    "glm": "{% for m in messages %}{{ '<|im_end|>' if m.role == 'user' else '<|im_start|>' }}{{ m.content }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}",
}


@pytest.mark.parametrize("name", TEMPLATES)
async def test_a_later_prompt_says_each_message_once(
    model: LocalVLLMModel, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    engine = engine_of(model)
    monkeypatch.setattr(engine._direct._renderer, "chat_template", TEMPLATES[name])
    monkeypatch.setattr(engine._direct, "_settings", OrderedDict())
    items: list[dict[str, Any]] = []
    kept, known = None, list[int]()
    for turn in range(4):
        items = [*items, responses.user_message(f"What is {turn} + 1?")]
        request = replace(asked(items, max_output_tokens=4 + turn % 2 * 8), memory=ModelMemory(kept))
        reply = await model.respond(request)
        kept, item = request.memory.kept, reply["output"][-1]
        prompt = list(item["prompt_token_ids"])
        assert prompt[: len(known)] == known
        text = engine._tokenizer.decode(prompt[len(known) :])
        assert text.count("What is") == text.count(f"{turn} + 1?") == 1
        known = [*prompt, *item["generation_token_ids"]]
        items = [*items, *reply["output"]]


async def test_a_later_message_of_the_system_is_said_where_vllm_moves_it(model: LocalVLLMModel) -> None:
    items: list[dict[str, Any]] = [{"role": "developer", "content": "Be brief."}, responses.user_message("1 + 1?")]
    first = asked(items, max_output_tokens=4)
    items = [*items, *(await model.respond(first))["output"], {"role": "system", "content": "Be kind."}]
    for memory in (ModelMemory(first.memory.kept), ModelMemory()):
        reply = await model.respond(replace(asked([*items, responses.user_message("2 + 2?")]), memory=memory))
        assert "Be kind." in engine_of(model)._tokenizer.decode(reply["output"][-1]["prompt_token_ids"])


async def test_a_turn_with_other_tools_shows_them_to_the_model(model: LocalVLLMModel) -> None:
    first = asked("What is 3 + 4?", tools=[ADD], max_output_tokens=8)
    items = [*first.params["input"], *(await model.respond(first))["output"], responses.user_message("And 1 + 1?")]
    multiply = {**ADD, "name": "multiply"}
    request = replace(asked(items, tools=[multiply], max_output_tokens=8), memory=ModelMemory(first.memory.kept))
    reply = await model.respond(request)
    prompt = engine_of(model)._tokenizer.decode(reply["output"][-1]["prompt_token_ids"])
    assert "Tools: multiply" in prompt


async def test_a_turn_of_the_application_is_rendered_with_the_effort_of_its_reasoning(
    model: LocalVLLMModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, rendered = asgi.post, list[dict[str, Any]]()

    async def spy(app: Any, path: str, body: Any) -> tuple[int, bytes]:
        if path == "/tokenize":
            rendered.append(body.get("chat_template_kwargs", {}))
        return await post(app, path, body)

    monkeypatch.setattr(engine_of(model), "_direct", None)
    monkeypatch.setattr(asgi, "post", spy)
    first = asked("What is 3 + 4?", max_output_tokens=8)
    items = [*first.params["input"], *(await model.respond(first))["output"], responses.user_message("And 1 + 1?")]
    await model.respond(asked(items, max_output_tokens=8, reasoning={"effort": "low"}))
    assert rendered
    assert all(one == {"reasoning_effort": "low"} for one in rendered)


async def test_a_reply_is_held_to_a_schema(model: LocalVLLMModel) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    extra = {"response_format": {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}}
    reply = await model.respond(
        asked("What is 3 + 4?", metadata={"extra_body": json.dumps(extra)}, temperature=0.0, max_output_tokens=30)
    )
    assert text_of(reply).lstrip().startswith("{")


async def test_a_prompt_that_does_not_fit_gives_an_incomplete_reply_with_the_reason(model: LocalVLLMModel) -> None:
    reply = await model.respond(asked("x y " * MAX_MODEL_LEN))
    assert (reply["status"], reply["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


async def test_a_reply_has_what_room_the_context_leaves(model: LocalVLLMModel) -> None:
    extra = json.dumps({"ignore_eos": True})
    reply = await model.respond(asked("x " * 200, max_output_tokens=9999, metadata={"extra_body": extra}))
    assert (reply["status"], reply["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert reply["usage"]["total_tokens"] == MAX_MODEL_LEN
    assert reply["usage"]["output_tokens"] > 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x " * 200, "max_tokens": 9999, "ignore_eos": True}),
        ("/v1/responses", {"input": "x " * 200, "max_output_tokens": 9999, "ignore_eos": True}),
    ],
)
async def test_the_other_dialects_give_what_room_the_context_leaves_too(
    model: LocalVLLMModel, path: str, body: dict[str, Any]
) -> None:
    status, answer = await engine_of(model).post(path, {"model": model.options.model, **body})
    assert (status, json.loads(answer).get("usage", {}).get("total_tokens")) == (200, MAX_MODEL_LEN), answer


async def test_a_request_that_vllm_does_not_take_fails_for_good_in_its_words(model: LocalVLLMModel) -> None:
    with pytest.raises(gymq.RolloutError, match=r"policy_model: 400: .*top_k") as caught:
        await model.respond(asked("hi", metadata={"extra_body": json.dumps({"top_k": -5})}))
    assert not caught.value.retryable


async def test_collections_of_garbage_leave_out_what_vllm_has_built(model: LocalVLLMModel) -> None:
    assert gc.get_freeze_count() > 100_000


async def test_many_requests_run_at_once(model: LocalVLLMModel) -> None:
    tasks = [asyncio.create_task(model.respond(asked("What is 3 + 4?", **ENDLESS))) for _ in range(32)]
    await settled(model, 32)
    replies = await asyncio.gather(*tasks)
    assert {reply["usage"]["output_tokens"] for reply in replies} == {400}
    await settled(model, 0)


async def test_a_cancelled_request_leaves_the_engine(model: LocalVLLMModel) -> None:
    tasks = [asyncio.create_task(model.respond(asked("What is 3 + 4?", **ENDLESS))) for _ in range(8)]
    await settled(model, 8)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await num_running_beside(model) == 0
    await settled(model, 0)


async def test_a_request_leaves_the_engine_at_its_deadline(model: LocalVLLMModel) -> None:
    await engine_of(model)._llm.pause_generation(mode="keep")
    try:
        with pytest.raises(gymq.RolloutError, match=r"no answer within 0\.2 s") as caught:
            await model.respond(asked("What is 3 + 4?", timeout_s=0.2, **ENDLESS))
    finally:
        await engine_of(model)._llm.resume_generation()
    assert caught.value.failure_class is gymq.FailureClass.DEADLINE_EXCEEDED
    assert await num_running_beside(model) == 0


async def test_the_worker_takes_a_few_more_calls_than_the_engine_runs(model: LocalVLLMModel) -> None:
    assert 64 < model.max_concurrency < 128


async def test_an_argument_that_vllm_does_not_know_is_named() -> None:
    worker = LocalVLLMModel(options(vllm_serve_kwargs={"no_such_thing": 3}), name="policy_model")
    with pytest.raises(ValueError, match=r"^vllm_serve_kwargs: unrecognized arguments: --no-such-thing"):
        await worker.start()


async def test_an_engine_that_cannot_start_says_why() -> None:
    worker = LocalVLLMModel(options(vllm_serve_kwargs={"kv_cache_memory_bytes": 1024}), name="policy_model")
    with pytest.raises(GymqError, match=r"^vLLM's engine cannot start: ValueError: No available memory for the cache"):
        await worker.start()


async def test_with_a_base_url_no_engine_is_started() -> None:
    worker = LocalVLLMModel(options(base_url="http://127.0.0.1:9/v1"), name="policy_model")
    await worker.start()
    assert worker.load() is None
    with pytest.raises(gymq.RolloutError, match="cannot connect"):
        await worker.respond(asked("What is 3 + 4?"))
    await worker.stop()
