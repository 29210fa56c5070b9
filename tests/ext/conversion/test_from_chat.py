"""A chat completion says the same as a Responses object."""

import json
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from gymq.ext.conversion.arguments import sent_arguments
from gymq.ext.conversion.from_chat import chat_choice_to_items, chat_to_response
from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.responses import InvalidReply, overflowed, validate_params, validate_response
from tests.responses.builders import completion, tokens, tool

CALL: dict[str, Any] = {"id": "k1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def items(message: dict[str, Any], *, split: bool = True, token_ids: bool = False) -> list[dict[str, Any]]:
    return chat_choice_to_items({"message": message}, split_reasoning=split, token_ids=token_ids)


def to_response(body: dict[str, Any], **params: Any) -> dict[str, Any]:
    return chat_to_response(body, validate_params({"input": "q", **params}), model="served", split_reasoning=True)


@pytest.mark.parametrize(
    ("text", "thoughts", "rest"),
    [
        ("<think>a\nb</think>\n\nc", ["a\nb"], "\n\nc"),
        ("<think>a<think>b</think>c</think>", ["a<think>b"], "c</think>"),
        ("<think></think>x", [""], "x"),
        ("<THINK>a</THINK>", [], "<THINK>a</THINK>"),
        ('<think lang="en">a</think>', [], '<think lang="en">a</think>'),
        ("a</think>b", [], "a</think>b"),
        ("x<think>a</think>", ["a"], "x"),
    ],
)
def test_complete_think_blocks_and_nothing_else_become_reasoning(text: str, thoughts: list[str], rest: str) -> None:
    *first, message = items({"content": text})

    assert [entry["text"] for item in first for entry in item["summary"]] == thoughts
    assert message["content"][0]["text"] == rest


def test_reasoning_alone_needs_no_message() -> None:
    assert [item["type"] for item in items({"content": "<think></think>"})] == ["reasoning"]


@pytest.mark.parametrize("message", [{}, {"content": None}, {"content": ""}, {"content": "", "tool_calls": []}])
def test_there_is_always_one_item(message: dict[str, Any]) -> None:
    [item] = items(message)

    assert item["content"] == [{"type": "output_text", "text": "", "annotations": []}]


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_what_an_engine_has_broken_off_is_no_reply(reason: str) -> None:
    with pytest.raises(InvalidReply, match=r"choices\[0\]\.finish_reason"):
        to_response(completion({"content": "I ad"}, finish_reason=reason))


def test_white_space_is_text() -> None:
    assert [item["type"] for item in items({"content": " ", "tool_calls": [CALL]})] == ["message", "function_call"]


def test_ids_are_new_each_time() -> None:
    ids = {item["id"] for _ in range(50) for item in items({"content": "<think>a</think>b"})}

    assert len(ids) == 100


def test_token_fields_go_on_the_last_item_untouched() -> None:
    packed = tokens(array("i", [1]), array("i", [2, 3]), array("f", [-0.5, -0.25]))

    first, last = items({"content": "<think>a</think>b", **packed, "routed_experts": "r"}, token_ids=True)

    assert "generation_token_ids" not in first
    assert all(last[name] is packed[name] for name in packed)
    assert last["routed_experts"] == "r"


def test_token_ids_written_as_text_become_numbers() -> None:
    [item] = items({"content": "a", **tokens(["1"], ["2"])}, token_ids=True)

    assert (item["prompt_token_ids"], item["generation_token_ids"]) == ([1], [2])


def test_without_token_tracking_no_token_fields_are_kept() -> None:
    [item] = items({"content": "a", **tokens([1], [2])})

    assert "prompt_token_ids" not in item


@pytest.mark.parametrize(
    ("choice", "path"),
    [
        ({}, ""),
        ({"message": "hi"}, "message"),
        ({"message": {"content": ["a"]}}, "message.content"),
        ({"message": {"tool_calls": [{"id": "k", "function": {"name": "f"}}]}}, "message.tool_calls[0].function"),
        ({"message": {"tool_calls": [{**CALL, "id": 7}]}}, "message.tool_calls[0].id"),
        ({"message": {"tool_calls": [{**CALL, "type": "custom"}]}}, "message.tool_calls[0].type"),
        ({"message": {"prompt_token_ids": [1]}}, "message.generation_token_ids"),
        ({"message": tokens([1], [2], [-0.5, -0.5])}, "message.generation_log_probs"),
        ({"message": tokens([1], [2], [float("nan")])}, "message.generation_log_probs"),
        ({"message": tokens([1], [2, 3], [float("inf"), float("-inf")])}, "message.generation_log_probs"),
    ],
)
def test_a_choice_that_does_not_fit_is_a_bad_reply(choice: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidReply) as caught:
        chat_choice_to_items(choice, split_reasoning=True, token_ids=True)

    assert caught.value.path == path


@pytest.mark.parametrize(
    ("finish_reason", "status", "reason"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        (None, "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
    ],
)
def test_finish_reason_decides_the_status(finish_reason: Any, status: str, reason: Any) -> None:
    answer = to_response(completion({"content": "a"}, finish_reason))

    assert (answer["status"], answer["incomplete_details"]) == (status, reason)


def test_only_the_first_choice_counts() -> None:
    body = completion({"content": "a"})
    body["choices"].append({"index": 1, "message": {"content": "b"}})

    assert [item["content"][0]["text"] for item in to_response(body)["output"]] == ["a"]


def test_settings_of_the_request_are_repeated() -> None:
    settings = {
        "tools": [tool()],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 5,
        "metadata": {"k": "v"},
        "instructions": "Base.",
        "user": "u",
        "truncation": "auto",
    }

    answer = to_response(completion({"content": "a"}), **settings)

    assert {name: answer[name] for name in settings} == settings


def test_defaults_stand_for_settings_that_were_not_made() -> None:
    answer = to_response(completion({"content": "a"}), temperature=None)

    assert (answer["tools"], answer["tool_choice"], answer["parallel_tool_calls"]) == ([], "auto", True)
    assert "temperature" not in answer


def test_the_model_is_the_workers_and_the_time_is_upstreams() -> None:
    answer = to_response(completion({"content": "a"}), model="asked for")

    assert (answer["model"], answer["created_at"]) == ("served", 5)


def test_usage_is_translated() -> None:
    answer = to_response(completion({"content": "a"}, usage=USAGE))

    assert answer["usage"]["input_tokens"] == 7


def test_no_usage_upstream_is_no_usage() -> None:
    assert to_response(completion({"content": "a"}, usage=None))["usage"] is None


@pytest.mark.parametrize("usage", [{"prompt_tokens": 7, "total_tokens": 10}, {**USAGE, "completion_tokens": None}])
def test_a_reply_that_was_all_reasoning_may_lack_its_message_and_its_number(usage: dict[str, Any]) -> None:
    answer = to_response({**completion({}, usage=usage), "choices": [{"index": 0, "finish_reason": "length"}]})

    assert (answer["incomplete_details"], answer["usage"]["output_tokens"]) == ({"reason": "max_output_tokens"}, 3)
    assert not overflowed(answer)


@pytest.mark.parametrize("call_id", [{"id": ""}, {"id": None}, {}])
def test_calls_without_ids_get_their_own(call_id: dict[str, Any]) -> None:
    calls = [{**call_id, "function": CALL["function"]}] * 2
    one, other = items({"content": None, "tool_calls": calls})

    assert one["call_id"].startswith("call_")
    assert one["call_id"] != other["call_id"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({**completion({}), "choices": []}, "choices"),
        ({**completion({}), "choices": [{"message": "a"}]}, "choices[0].message"),
        ({**completion({}), "choices": [{"message": {"tool_calls": [7]}}]}, "choices[0].message.tool_calls[0]"),
        ({"error": {"message": "busy"}}, "choices"),
        ("busy", ""),
    ],
)
def test_a_completion_that_does_not_fit_is_a_bad_reply(body: Any, path: str) -> None:
    with pytest.raises(InvalidReply) as caught:
        to_response(body)

    assert caught.value.path == path


@pytest.mark.parametrize(
    ("usage", "input_tokens"),
    [
        ({"prompt_tokens": 1}, None),
        ({**USAGE, "prompt_tokens_details": {"cached_tokens": "2"}}, 7),
    ],
)
def test_usage_that_does_not_fit_costs_only_itself(usage: dict[str, Any], input_tokens: int | None) -> None:
    counted = to_response(completion({"content": "a"}, usage=usage))["usage"]

    assert (counted and counted["input_tokens"]) == input_tokens


def test_openai_accepts_what_we_make() -> None:
    body = completion({"content": "<think>a</think>b", "tool_calls": [CALL]}, "tool_calls")
    ChatCompletion.model_validate(body)

    answer = to_response(body, tools=[tool()], temperature=0.5, metadata={"k": "v"})

    read = Response.model_validate(answer)
    assert read.output_text == "b"
    assert [item.type for item in read.output] == ["reasoning", "message", "function_call"]


WORDS = st.text(alphabet="ab <>/think\n", max_size=12)
CALLS = st.lists(
    st.builds(
        lambda number, name, arguments: {
            "id": f"call-{number}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        },
        st.integers(0, 9),
        st.text(min_size=1, max_size=5),
        st.one_of(st.text(max_size=5), st.just('{"a": 1}')),
    ),
    max_size=3,
)


@given(WORDS, CALLS, st.lists(st.integers(0, 99), max_size=4))
def test_what_the_model_said_comes_back_in_the_next_request(
    text: str, calls: list[dict[str, Any]], generated: list[int]
) -> None:
    said = {"content": text, "tool_calls": calls, **tokens([1], generated)}
    answer = chat_to_response(completion(said), {"input": "q"}, model="m", split_reasoning=False, token_ids=True)

    history = validate_params({"input": validate_response(answer)["output"]})
    [message] = responses_to_chat(history, token_ids=True)["messages"]

    sent_calls = [
        {**call, "function": {**call["function"], "arguments": sent_arguments(call["function"]["arguments"])}}
        for call in calls
    ]
    sent = {
        "content": text or (None if calls else ""),
        **({"tool_calls": sent_calls} if calls else {}),
        **tokens([1], generated),
    }
    assert message == {"role": "assistant", **sent}


CUSTOM = [{"type": "custom", "name": "patch"}, {"type": "custom", "name": "f"}, tool("f")]


@given(st.text(max_size=9))
def test_the_call_of_a_custom_tool_comes_back_as_one_and_survives_the_next_request(text: str) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=False)
    called = [{"id": "k", "type": "function", "function": {"name": "patch", "arguments": arguments}}]
    said = {"content": None, "tool_calls": called, **tokens([1], [2, 3])}
    params = {"input": "q", "tools": CUSTOM}
    answer = chat_to_response(completion(said), params, model="m", split_reasoning=False, token_ids=True)

    [item] = validate_response(answer)["output"]
    assert {name: item[name] for name in ("type", "call_id", "name", "input")} == {
        "type": "custom_tool_call",
        "call_id": "k",
        "name": "patch",
        "input": text,
    }
    output = {"type": "custom_tool_call_output", "call_id": "k", "output": "done"}
    history = validate_params({"input": [item, output]})
    assert responses_to_chat(history, token_ids=True)["messages"] == [
        {"role": "assistant", **said},
        {"role": "tool", "tool_call_id": "k", "content": "done"},
    ]


@pytest.mark.parametrize("arguments", ["*** Begin", "{}", '{"input": 7}', "\ud800", "[" * 5000])
def test_what_a_model_gives_a_custom_tool_in_place_of_its_argument_is_the_input(arguments: str) -> None:
    called = [{"id": "k", "type": "function", "function": {"name": "patch", "arguments": arguments}}, CALL]
    patch, function = to_response(completion({"tool_calls": called}), tools=CUSTOM)["output"]

    assert (patch["type"], patch["input"]) == ("custom_tool_call", arguments)
    assert (function["type"], function["arguments"]) == ("function_call", CALL["function"]["arguments"])


@given(st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), max_size=3), st.text(alphabet="ab\n", max_size=8))
def test_reasoning_comes_back_in_front_of_the_text(thoughts: list[str], text: str) -> None:
    content = "".join(f"<think>{thought}</think>" for thought in thoughts) + text

    [message] = responses_to_chat({"input": items({"content": content})})["messages"]

    assert message["content"] == content


@given(
    st.dictionaries(
        st.sampled_from(["content", "tool_calls", *tokens([], [])]),
        st.none() | WORDS | CALLS | st.lists(st.integers() | st.floats() | st.text(max_size=3), max_size=3),
    )
)
def test_whatever_the_message_the_only_error_is_a_bad_reply(message: dict[str, Any]) -> None:
    try:
        made = items(message, token_ids=True)
    except InvalidReply:
        return
    assert made
