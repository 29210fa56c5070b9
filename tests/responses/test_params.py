"""Requests are checked before anything is sent."""

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.responses import InvalidRequest, row_params, validate_params

from .builders import assistant, call, output, reasoning, tokens, tool, user

TEXT_PART = {"type": "input_text", "text": "a"}


def refusal(params: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        validate_params(params)
    return str(caught.value)


@pytest.mark.parametrize(
    "item",
    [
        user("hi"),
        {"type": "message", "role": "system", "content": "rule"},
        {"role": "developer", "content": [TEXT_PART]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "http://i/1.png"}]},
        {"role": "user", "content": [{"type": "input_image", "file_id": "f", "image_url": None, "detail": "high"}]},
        {"role": "user", "content": [{"type": "input_video", "video_url": "http://v/1.mp4"}]},
        {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]},
        {"role": "assistant", "content": "plain"},
        {"role": "assistant", "content": [TEXT_PART]},
        assistant("done"),
        assistant("", content=[{"type": "refusal", "refusal": "no"}]),
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": ""}}]},
        {"role": "tool", "tool_call_id": "c", "content": "3"},
        call(),
        call(id="fc_1", status="completed"),
        output(),
        output(value=[TEXT_PART]),
        reasoning("hm"),
        reasoning(encrypted_content="abc", content=[{"type": "reasoning_text", "text": "x"}]),
        {"type": "web_search_call", "id": "ws", "status": "searching", "action": {"type": "search"}},
        {"type": "mcp_list_tools", "tools": []},
        {"type": "code_interpreter_call", "code": "1+1"},
    ],
)
def test_item_is_accepted_and_kept_as_it_is(item: dict[str, Any]) -> None:
    assert validate_params({"input": [item]})["input"] == [item]


def test_fields_of_items_that_nobody_reads_survive() -> None:
    item = {**call(), "namespace": "n", "provider": {"deep": [1, None]}}

    assert validate_params({"input": [item]})["input"] == [item]


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ("text", "input[1]:"),
        (None, "input[1]:"),
        ({"content": "a"}, "input[1].role:"),
        ({"type": "message", "content": "a"}, "input[1].role:"),
        ({"role": "robot", "content": "a"}, "input[1].role: 'robot' is not a role"),
        ({"role": ["user"], "content": "a"}, "input[1].role:"),
        ({"type": "telepathy"}, "input[1].type: 'telepathy' is not an item type"),
        ({"type": ["message"], "role": "user", "content": "a"}, "input[1].type:"),
        ({"role": "user"}, "input[1]:"),
        ({"role": "user", "content": None}, "input[1].content:"),
        ({"role": "user", "content": 7}, "input[1].content:"),
        ({"role": "user", "content": ["a"]}, "input[1].content[0]:"),
        ({"role": "user", "content": [TEXT_PART, {"type": "input_text"}]}, "input[1].content[1]:"),
        ({"role": "user", "content": [{"type": "input_text", "text": 7}]}, "input[1].content[0].text:"),
        ({"role": "user", "content": [{"type": "output_text", "text": "a"}]}, "input[1].content[0].type:"),
        ({"role": "assistant", "content": None}, "input[1].content:"),
        ({"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]}, "input[1].tool_calls[0]:"),
        ({"role": "tool", "content": "3"}, "input[1]:"),
        (call(arguments={"x": 1}), "input[1].arguments:"),
        (call(call_id=None), "input[1].call_id:"),
        ({"type": "function_call", "call_id": "c"}, "input[1]:"),
        (output(value=3), "input[1].output:"),
        (output(value=None), "input[1].output:"),
        ({"type": "reasoning", "id": "rs"}, "input[1]:"),
        ({"type": "reasoning", "id": "rs", "summary": "hm"}, "input[1].summary:"),
    ],
)
def test_item_that_does_not_fit_is_refused_with_its_path(item: Any, path: str) -> None:
    assert refusal({"input": [user("a"), item]}).startswith(path)


@pytest.mark.parametrize(
    "params",
    [
        {"input": "hi", "temperature": 1.0, "top_p": 0.9, "max_output_tokens": 0, "model": "m", "user": "u"},
        {"input": [], "metadata": {"extra_body": "{}"}, "store": False, "stream": False, "truncation": "auto"},
        {"input": "hi", "reasoning": {"effort": "low", "summary": None}, "text": {"format": {"type": "text"}}},
        {"input": "hi", "tools": [tool()], "tool_choice": "required", "parallel_tool_calls": False},
        {"input": "hi", "tools": [tool(strict=None, parameters=None, description=None)]},
        {"input": "hi", "tools": [{"type": "web_search"}], "tool_choice": {"type": "function", "name": "f"}},
        {"input": "hi", "background": False, "include": ["reasoning.encrypted_content"], "max_tool_calls": 3},
        {"input": "hi", "previous_response_id": "resp_0", "prompt": {"id": "p"}, "service_tier": "auto"},
        {"input": "hi", "prompt_cache_key": "k", "prompt_cache_retention": "24h", "safety_identifier": "u"},
        {"input": "hi", "conversation": {"id": "c"}, "context_management": [{"type": "compaction"}]},
        {"input": "hi", "instructions": None, "temperature": None, "tools": None, "metadata": None},
    ],
)
def test_known_fields_are_accepted_and_kept(params: dict[str, Any]) -> None:
    assert validate_params(params) == params


@pytest.mark.parametrize(
    ("params", "path"),
    [
        (["hi"], "expected an object"),
        ({}, "Object missing required field `input`"),
        ({"input": None}, "input:"),
        ({"input": 3}, "input:"),
        ({"input": {"role": "user"}}, "input:"),
        ({"input": "a", "seed": 1}, "seed: unknown field"),
        ({"input": "a", "max_tokens": 1}, "max_tokens: unknown field"),
        ({"input": "a", 1: 2}, "1: unknown field"),
        ({"input": "a", "temperature": "hot"}, "temperature:"),
        ({"input": "a", "max_output_tokens": 1.5}, "max_output_tokens:"),
        ({"input": "a", "instructions": 7}, "instructions:"),
        ({"input": "a", "user": 7}, "user:"),
        ({"input": "a", "metadata": {"k": 1}}, "metadata"),
        ({"input": "a", "stream": True}, "stream:"),
        ({"input": "a", "prompt": {}}, "prompt:"),
        ({"input": "a", "tools": tool()}, "tools:"),
        ({"input": "a", "tools": [tool(), "f"]}, "tools[1].type:"),
        ({"input": "a", "tools": [{"type": "function", "name": "f", "parameters": {}}]}, "tools[0]:"),
        ({"input": "a", "tools": [{"type": "function", "name": "f", "strict": True}]}, "tools[0]:"),
        (
            {"input": "a", "tools": [{"type": "function", "function": {"name": "f"}}]},
            "tools[0].function: a form of Chat",
        ),
        ({"input": [{"role": "assistant", "id": "msg_1", "content": 3}]}, "input[0].content:"),
        ({"input": [assistant("a", **tokens([1, "x"], [2]))]}, "input[0].prompt_token_ids[1]:"),
        ({"input": "a", "tool_choice": 3}, "tool_choice:"),
        ({"input": "a", "service_tier": 3}, "service_tier:"),
        ({"input": "a", "reasoning": {"effort": 3}}, "reasoning.effort:"),
        ({"input": "a", "tools": [tool(extra=1)]}, "tools[0]:"),
        ({"input": "a", "tools": [tool(name=None)]}, "tools[0].name:"),
    ],
)
def test_request_that_does_not_fit_is_refused_with_the_path(params: Any, path: str) -> None:
    assert refusal(params).startswith(path)


def test_numbers_written_as_text_and_whole_floats_become_numbers() -> None:
    params = {"input": "a", "temperature": "0.5", "max_output_tokens": 7.0, "top_logprobs": "3", "store": "true"}

    checked = validate_params(params)

    assert checked == {"input": "a", "temperature": 0.5, "max_output_tokens": 7, "top_logprobs": 3, "store": True}
    assert params["temperature"] == "0.5"


def test_token_ids_written_as_text_become_numbers() -> None:
    [item] = validate_params({"input": [assistant("a", **tokens(["1", 2], ["3"], ["-0.5"]))]})["input"]

    assert {name: item[name] for name in tokens([], [])} == tokens([1, 2], [3], [-0.5])


def test_token_arrays_are_passed_on_as_the_same_objects() -> None:
    packed = tokens(array("i", [1, 2]), array("i", [3]), array("f", [-0.5]))

    [item] = validate_params({"input": [call(**packed, routed_experts="nrlre1:...")]})["input"]

    assert all(item[name] is packed[name] for name in packed)
    assert item["routed_experts"] == "nrlre1:..."


def test_token_lists_are_passed_on_as_the_same_objects() -> None:
    listed = tokens([1, 2], [3])

    [item] = validate_params({"input": [call(**listed)]})["input"]

    assert all(item[name] is listed[name] for name in listed)


@pytest.mark.parametrize("absent", list(tokens([], [])))
@pytest.mark.parametrize("item", [assistant("a"), user("a"), call(), reasoning("a")])
def test_part_of_the_token_fields_is_refused(item: dict[str, Any], absent: str) -> None:
    partial = {name: value for name, value in tokens([1], [2]).items() if name != absent}

    assert refusal({"input": [{**item, **partial}]}).startswith(f"input[0].{absent}: missing beside")


@pytest.mark.parametrize(
    "members",
    [
        tokens([1], ["x"]),
        tokens([1.5], [2]),
        tokens("1", [2]),
        tokens([1], [2], [None]),
        tokens(array("d", [1.0]), [2]),
        tokens([1], [2], array("i", [1])),
    ],
)
def test_token_fields_that_are_no_numbers_are_refused(members: dict[str, Any]) -> None:
    assert "_ids" in (message := refusal({"input": [call(**members)]})) or "log_probs" in message


def test_null_token_fields_count_as_absent() -> None:
    item = call(**dict.fromkeys(tokens([], [])))

    assert validate_params({"input": [item]})["input"] == [item]


def test_reasoning_loses_the_status_that_openai_does_not_take_back() -> None:
    assert validate_params({"input": [reasoning("a", status=None)]})["input"] == [reasoning("a")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = st.sampled_from(
    ["type", "role", "content", "call_id", "name", "arguments", "output", "summary", "tool_calls", *tokens([], [])]
)
KINDS = st.sampled_from(["message", "function_call", "function_call_output", "reasoning", "user", "assistant", "tool"])


@given(st.lists(st.dictionaries(MEMBERS, KINDS | JSON), max_size=3), st.lists(JSON, max_size=2))
def test_whatever_the_request_the_only_error_is_a_refusal(items: list[Any], tools: list[Any]) -> None:
    try:
        params = validate_params({"input": items, "tools": tools})
    except InvalidRequest:
        return
    assert validate_params(params) == params


def test_of_a_row_what_is_not_known_is_dropped_with_one_warning_for_each_name(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymq.responses.errors._reported", set())
    row = {
        "input": "hi",
        "max_tokens": 5,
        "stream": True,
        "background": False,
        "tools": ["f", tool(mood="calm", defer_loading=True)],
    }
    for _ in range(2):
        assert row_params(row) == {"input": "hi", "background": False, "tools": ["f", tool(defer_loading=True)]}
    assert caplog.messages == [
        "the request's field 'max_tokens' is dropped: it is not known here; did you mean 'max_output_tokens'?",
        "the request's field 'stream' is dropped: the reply is returned whole",
        "the field 'mood' of function tools is dropped: it is not known here",
    ]


@pytest.mark.parametrize(("name", "meant"), [("temprature", "temperature"), ("inptu", "input"), ("top_k", "top_p")])
def test_in_a_row_a_name_that_is_almost_known_is_a_mistake(name: str, meant: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{name}: unknown field; did you mean '{meant}'"):
        row_params({"input": "hi", name: 1})


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("truncation", "sometimes", "truncation"),
        ("service_tier", "gold", "service_tier"),
        ("tool_choice", "maybe", "tool_choice"),
        ("reasoning", {"effort": "extreme"}, "reasoning.effort"),
        ("reasoning", {"summary": "long"}, "reasoning.summary"),
    ],
)
def test_a_value_that_is_not_known_is_left_to_the_endpoint_with_one_warning(
    field: str, value: Any, path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymq.responses.errors._reported", set())
    for _ in range(2):
        assert validate_params({"input": "hi", field: value}) == {"input": "hi", field: value}
    [message] = caplog.messages
    assert message.startswith(f"{path}: '")


@pytest.mark.parametrize(
    ("row", "path"),
    [
        ("hi", "expected an object"),
        ({"input": [{"type": "dream_call"}]}, "input[0].type:"),
        ({"input": "hi", "tools": [{"type": "function", "name": "f"}]}, "tools[0]:"),
    ],
)
def test_of_a_row_what_would_change_the_question_is_refused(row: Any, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        row_params(row)
    assert str(caught.value).startswith(path)
