"""What an engine gets for a request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gymq.workers.models.vllm_model.engine_form import FORMS, merged
from gymq.workers.models.vllm_model.options import VLLMOptions
from gymq.workers.models.vllm_model.prepare import chat_body, ends_in_reasoning, prepared, responses_body, tokenize_body

from gymq.responses import InvalidRequest

USER = {"role": "user", "content": "Hi"}
AUDIO = {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,AA=="}}
URL = "data:audio/wav;base64,AA=="


def options(**given: Any) -> VLLMOptions:
    needed = {"base_url": "http://e/v1", "api_key": "k", "model": "served"}
    return VLLMOptions(**{**needed, "return_token_id_information": False, "uses_reasoning_parser": True, **given})


def body(*messages: dict[str, Any], audio: tuple[str, ...] = (), request: Any = None, **given: Any) -> dict[str, Any]:
    shown = prepared(messages or (USER,), options(**given))
    return chat_body({"messages": shown, **(request or {})}, options(**given), audio)


def assistant(content: Any, **members: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **members}


def test_developers_become_system_messages_if_wanted() -> None:
    developer = {"role": "developer", "content": "Be brief."}
    assert body(developer, USER)["messages"][0] == developer
    changed = body(developer, USER, replace_developer_role_with_system=True)["messages"]
    assert changed == [{"role": "system", "content": "Be brief."}, USER]


def test_metadata_overlays_the_configured_template_arguments_and_stays() -> None:
    metadata = {"chat_template_kwargs": '{"a": 2}'}
    found = body(request={"metadata": metadata}, chat_template_kwargs={"a": 1, "b": 1})
    assert (found["chat_template_kwargs"], found["metadata"]) == ({"a": 2, "b": 1}, metadata)
    assert "chat_template_kwargs" not in body()


def test_fields_of_the_body_go_extra_body_metadata_request_pins() -> None:
    metadata = {"extra_body": json.dumps({"b": 2, "top_p": 2, "seed": 2})}
    found = body(
        request={"metadata": metadata, "top_p": 3, "seed": 3},
        extra_body={"a": 1, "b": 1, "top_p": 1, "seed": 1},
        sampling_overrides={"seed": 4},
    )
    assert {name: found[name] for name in ("a", "b", "top_p", "seed")} == {"a": 1, "b": 2, "top_p": 3, "seed": 4}


@pytest.mark.parametrize("text", ["{", "[]", "null", 7])
@pytest.mark.parametrize("name", ["chat_template_kwargs", "extra_body"])
def test_metadata_that_is_no_object_is_refused(name: str, text: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"metadata.{name}: expected the JSON text of an object"):
        body(request={"metadata": {name: text}})


def test_null_fields_are_not_sent() -> None:
    found = body(request={"metadata": None, "top_logprobs": None, "temperature": None}, extra_body={"temperature": 1})
    assert found == {"messages": [USER], "model": "served", "temperature": 1}


def test_token_tracking_asks_for_log_probs_and_names_by_id() -> None:
    found = body(return_token_id_information=True, request={"top_logprobs": None})
    assert (found["logprobs"], found["top_logprobs"], found["return_tokens_as_token_ids"]) == (True, 0, True)
    assert "return_token_ids" not in found
    asking = body(return_token_id_information=True, request_prompt_and_generation_token_ids=True)
    assert asking["return_token_ids"] is True


def test_each_engine_is_asked_for_token_ids_in_its_own_words() -> None:
    asked = {"logprobs": True, "top_logprobs": 0}
    sglang = body(return_token_id_information=True, engine="sglang")
    assert sglang == {"messages": [USER], "model": "served", **asked, "return_token_ids": True}
    given = {"nvext": {"cache_salt": "s", "extra_fields": ["timing"]}}
    dynamo = body(return_token_id_information=True, engine="dynamo", extra_body=given)
    fields = ["timing", "prompt_token_ids", "completion_token_ids", "engine_data"]
    assert dynamo["nvext"] == {"cache_salt": "s", "extra_fields": fields}
    assert dynamo.keys() == {"messages", "model", "nvext", *asked}


def test_tensorrt_llm_gets_no_field_that_it_refuses() -> None:
    assert body(request={"metadata": {"a": "b"}, "store": False}, engine="tensorrt_llm").keys() == {"messages", "model"}


@pytest.mark.parametrize("engine", FORMS)
def test_a_prompt_in_tokens_leaves_the_rest_of_a_body_as_it_is(engine: str) -> None:
    given = {"messages": [USER], "nvext": {"a": 1}, "kv_transfer_params": {"b": 2}}
    sent = FORMS[engine].with_prompt(given, [1, 2])
    assert given == {"messages": [USER], "nvext": {"a": 1}, "kv_transfer_params": {"b": 2}}
    assert merged(sent, given) == sent
    value: Any = sent
    for name in FORMS[engine].prompt_path:
        value = value[name]
    assert value == [1, 2]


@pytest.mark.parametrize("where", ["request", "extra_body", "sampling_overrides"])
def test_token_tracking_refuses_several_replies(where: str) -> None:
    several: dict[str, Any] = {where: {"n": 2}}
    with pytest.raises(InvalidRequest, match="n: 2 replies"):
        body(return_token_id_information=True, **several)
    assert body(**several)["n"] == 2


def test_the_first_think_block_of_a_turn_goes_under_both_names_and_all_leave_the_text() -> None:
    (found,) = body(assistant("<think>a</think>b<think>c</think>d"))["messages"]
    assert found == assistant("bd", reasoning_content="a", reasoning="a")


def test_think_blocks_leave_lists_of_parts_too() -> None:
    part = {"type": "text", "text": "<think>a\n</think>b"}
    (found,) = body(assistant([part]))["messages"]
    assert found == assistant([{"type": "text", "text": "b"}], reasoning_content="a\n", reasoning="a\n")
    assert part["text"] == "<think>a\n</think>b"


@pytest.mark.parametrize("content", ["<think>a", "a</think>b", None, ""])
def test_what_is_no_think_block_stays(content: str | None) -> None:
    assert body(assistant(content))["messages"] == [assistant(content)]


def test_think_blocks_of_others_stay() -> None:
    user = {"role": "user", "content": "<think>a</think>b"}
    assert body(user)["messages"] == [user]


def test_without_a_parser_think_blocks_stay_in_the_text() -> None:
    said = assistant("<think>a</think>b")
    assert body(said, uses_reasoning_parser=False)["messages"] == [said]


def test_reasoning_of_earlier_turns_can_be_left_out_or_kept_in_the_text() -> None:
    said = assistant("<think>a</think>b")
    assert body(said, uses_interleaved_reasoning=False)["messages"] == [assistant("b")]
    assert body(said, preserve_reasoning_in_assistant_content=True)["messages"] == [said]


def test_audio_goes_in_front_of_what_the_last_user_said_and_leaves_metadata() -> None:
    first, answer = {"role": "user", "content": "First"}, assistant("Yes")
    found = body(first, USER, answer, audio=(URL, URL), request={"metadata": {"audio_data": URL, "x": "y"}})
    text = {"type": "text", "text": "Hi"}
    assert found["messages"] == [first, {"role": "user", "content": [AUDIO, AUDIO, text]}, answer]
    assert found["metadata"] == {"x": "y"}


def test_audio_without_a_user_message_makes_one_and_emptied_metadata_is_not_sent() -> None:
    system = {"role": "system", "content": "Listen."}
    found = body(system, audio=(URL,), request={"metadata": {"audio_data": URL}})
    assert found["messages"] == [system, {"role": "user", "content": [AUDIO]}]
    assert "metadata" not in found


def test_the_request_itself_is_not_changed() -> None:
    messages: list[dict[str, Any]] = [USER, assistant("<think>a</think>b")]
    request = {"messages": messages, "metadata": {"audio_data": URL}}
    before = json.dumps(request)
    prepared(messages, options())
    chat_body(request, options(), [URL])
    assert json.dumps(request) == before


def test_only_what_makes_the_prompt_is_tokenized() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    found = body(
        request={"tools": tools, "temperature": 1.0},
        chat_template_kwargs={"a": 1},
        return_token_id_information=True,
        extra_body={"mm_processor_kwargs": {"b": 1}, "top_k": 1},
    )
    assert tokenize_body(found) == {
        "model": "served",
        "messages": [USER],
        "tools": tools,
        "chat_template_kwargs": {"a": 1},
        "mm_processor_kwargs": {"b": 1},
    }


def test_the_template_is_told_the_effort_of_reasoning_where_there_is_no_field_for_it() -> None:
    found = body(request={"reasoning_effort": "low"}, chat_template_kwargs={"a": 1})
    assert tokenize_body(found)["chat_template_kwargs"] == {"a": 1, "reasoning_effort": "low"}


@pytest.mark.parametrize(
    ("last", "parser", "expected"),
    [
        (assistant("<think>a</think>"), True, True),
        (assistant(None), True, True),
        (assistant("<think>a</think>"), False, False),
        (assistant("<think>a</think>b"), True, False),
        (assistant("<think>a</think>", tool_calls=[{"id": "c"}]), True, False),
        (USER, True, False),
    ],
)
def test_a_turn_of_nothing_but_reasoning_is_recognised(last: dict[str, Any], parser: bool, expected: bool) -> None:
    for preserve in (False, True):
        given = options(uses_reasoning_parser=parser, preserve_reasoning_in_assistant_content=preserve)
        assert ends_in_reasoning(chat_body({"messages": prepared([USER, last], given)}, given), given) is expected


def test_a_native_request_passes_with_the_model_the_extra_body_and_the_pins() -> None:
    item = {**USER, "prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-1.0]}
    given = options(is_responses_native=True, extra_body={"top_k": 1, "top_p": 1}, sampling_overrides={"seed": 4})
    assert responses_body({"input": [item], "top_p": 0.5, "model": "x", "user": None}, given) == {
        "input": [USER],
        "model": "served",
        "top_k": 1,
        "top_p": 0.5,
        "seed": 4,
    }


def test_a_native_request_cannot_carry_audio() -> None:
    with pytest.raises(InvalidRequest, match=r"metadata.audio_data: audio can only be sent in chat"):
        responses_body({"input": "Hi", "metadata": {"audio_data": URL}}, options(is_responses_native=True))
