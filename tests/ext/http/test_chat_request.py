"""A chat request says the same as a Responses request."""

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.ext.http.chat_request import chat_messages_to_items, from_chat_request
from gymq.responses import InvalidRequest, validate_params
from tests.responses.builders import tokens

MESSAGES = [{"role": "user", "content": "q"}]
FUNCTION = {"name": "f", "description": "Does f.", "parameters": {"type": "object", "properties": {}}}


def params(**request: Any) -> dict[str, Any]:
    return validate_params(from_chat_request({"messages": MESSAGES, **request}))


def test_limits_and_effort_are_renamed() -> None:
    made = params(max_completion_tokens=5, max_tokens=9, reasoning_effort="low")

    assert (made["max_output_tokens"], made["reasoning"]) == (5, {"effort": "low"})


def test_the_older_name_of_the_limit_is_understood() -> None:
    assert params(max_tokens=9)["max_output_tokens"] == 9


def test_tools_are_flattened() -> None:
    made = params(
        tools=[{"type": "function", "function": FUNCTION}],
        tool_choice={"type": "function", "function": {"name": "f"}},
    )

    assert made["tools"] == [{"type": "function", **FUNCTION, "strict": None}]
    assert made["tool_choice"] == {"type": "function", "name": "f"}


def test_a_tool_without_parameters_takes_none() -> None:
    made = params(tools=[{"type": "function", "function": {"name": "f"}}])

    assert made["tools"][0]["parameters"] == {"type": "object", "properties": {}}


def test_fields_that_responses_lack_are_dropped_with_one_warning_for_each_name(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymq.responses.errors._reported", set())
    for _ in range(2):
        assert params(logit_bias={}, prediction=None, stop=["END"], seed=7, logprobs=False, n=1).keys() == {"input"}
    assert caplog.messages == [
        f"the request's field '{name}' is dropped: a request for a response has no place for it"
        for name in ("stop", "seed")
    ]


def test_the_format_of_the_reply_is_carried_there_and_back() -> None:
    schema: dict[str, Any] = {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
    }

    made = params(response_format=schema, verbosity="low")

    assert made["text"] == {"verbosity": "low", "format": {"type": "json_schema", **schema["json_schema"]}}
    sent = responses_to_chat(made)
    assert (sent["response_format"], sent["verbosity"]) == (schema, "low")
    assert "response_format" not in responses_to_chat(params(response_format={"type": "text"}))


GRAMMAR = {"syntax": "regex", "definition": "[a-z]+"}
CUSTOM = {"name": "patch", "description": "Changes files."}


def test_custom_tools_and_what_may_be_chosen_are_carried() -> None:
    made = params(
        tools=[
            {"type": "custom", "custom": {**CUSTOM, "format": {"type": "grammar", "grammar": GRAMMAR}}},
            {"type": "custom", "custom": {"name": "say", "format": {"type": "text"}}},
        ],
        tool_choice={
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"type": "custom", "custom": {"name": "patch"}}]},
        },
    )

    assert made["tools"] == [
        {"type": "custom", **CUSTOM, "format": {"type": "grammar", **GRAMMAR}},
        {"type": "custom", "name": "say", "format": {"type": "text"}},
    ]
    allowed = [{"type": "custom", "name": "patch"}]
    assert made["tool_choice"] == {"type": "allowed_tools", "mode": "required", "tools": allowed}
    named = params(tool_choice={"type": "custom", "custom": {"name": "patch"}})
    assert named["tool_choice"] == {"type": "custom", "name": "patch"}


def test_calls_of_custom_tools_and_their_results_are_carried() -> None:
    call = {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    messages = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "Done"}]

    items = chat_messages_to_items(messages)

    assert items == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done"},
    ]
    assert validate_params({"input": items})["input"] == items


def test_separate_reasoning_becomes_an_item_before_text_and_calls() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "reasoning_content": "r", "content": "a", "tool_calls": [call]}

    assert [item["type"] for item in chat_messages_to_items([message])] == ["reasoning", "message", "function_call"]


def test_parts_of_the_assistant_are_those_of_an_output() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "no"}]

    [item] = chat_messages_to_items([{"role": "assistant", "content": parts}])

    # OpenAI answers `input_text` here with a 400.
    assert item["content"] == [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "no"}]
    assert validate_params({"input": [item]})["input"] == [item]


def test_token_fields_go_on_the_last_item_of_the_turn() -> None:
    packed = tokens(array("i", [1]), array("i", [2]), array("f", [-0.5]))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    text, last = chat_messages_to_items([{"role": "assistant", "content": "a", "tool_calls": [call], **packed}])

    assert "prompt_token_ids" not in text
    assert all(last[name] is packed[name] for name in packed)


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "file"}]}]},
            "messages[0].content[0].type",
        ),
        ({"n": 2}, "n"),
        ({"tools": [{"type": "custom"}]}, "tools[0].custom"),
        ({"tools": [{"type": "robot"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tool_choice": {"type": "robot"}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
        ({"tool_choice": {"type": "custom"}}, "tool_choice.custom"),
        ({"response_format": "json"}, "response_format"),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"type": "custom", "id": "c", "custom": {"name": "f"}}]}
                ]
            },
            "messages[0].tool_calls[0].input",
        ),
    ],
)
def test_what_cannot_be_converted_is_refused_with_its_path(request_: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        params(**request_)

    assert caught.value.path == path


TEXT = st.text(max_size=6)
PARTS = st.lists(
    st.builds(lambda text: {"type": "text", "text": text}, TEXT)
    | st.builds(lambda url: {"type": "image_url", "image_url": {"url": f"http://{url}", "detail": "low"}}, TEXT)
    | st.builds(lambda url: {"type": "video_url", "video_url": {"url": f"http://{url}"}}, TEXT)
)
ASKING = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["system", "developer", "user"]),
    TEXT | PARTS,
)
ANSWERING = st.builds(
    lambda text, names: {
        "role": "assistant",
        "content": text or (None if names else ""),
        **({"tool_calls": [_call(position, name) for position, name in enumerate(names)]} if names else {}),
    },
    TEXT,
    st.lists(TEXT, max_size=2),
)
TOOL = st.builds(lambda text: {"role": "tool", "tool_call_id": "c0", "content": text}, TEXT)


def _call(position: int, name: str) -> dict[str, Any]:
    return {"id": f"c{position}", "type": "function", "function": {"name": name, "arguments": "{}"}}


@given(st.lists(st.tuples(ASKING, ANSWERING, TOOL).map(list), max_size=3))
def test_a_chat_history_survives_the_way_there_and_back(turns: list[list[dict[str, Any]]]) -> None:
    history = [message for turn in turns for message in turn]

    items = validate_params({"input": chat_messages_to_items(history)})

    assert responses_to_chat(items)["messages"] == history


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "url", "image_url", "function", "name", "id"]), inner)
    ),
    max_leaves=6,
)
ANY_MESSAGE = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "reasoning_content", "prompt_token_ids"]),
    st.sampled_from(["user", "assistant", "tool"]) | JSON,
)


@given(st.lists(ANY_MESSAGE, max_size=2), JSON, JSON)
def test_whatever_the_request_the_only_error_is_a_refusal(messages: list[Any], tools: Any, choice: Any) -> None:
    request = {"messages": messages, "tools": tools, "tool_choice": choice}
    try:
        validate_params(from_chat_request(request))
    except InvalidRequest:
        return


def test_a_result_of_a_tool_without_content_is_an_empty_text() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": None},
    ]
    assert chat_messages_to_items(messages)[-1]["output"] == ""
