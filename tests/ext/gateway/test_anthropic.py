"""A request in Anthropic's dialect says the same as a Responses request, and so does the reply."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.ext.gateway.from_anthropic import from_anthropic_request
from gymq.ext.gateway.to_anthropic import to_anthropic_message
from gymq.responses import InvalidReply, InvalidRequest, validate_params, validate_response
from tests.responses.builders import assistant, call, reasoning, response, user

USAGE = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3, "total_tokens": 13}


def params(**request: Any) -> dict[str, Any]:
    return validate_params(from_anthropic_request({"max_tokens": 9, "messages": [user("q")], **request}))


def items(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return params(messages=list(messages))["input"]


def message(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    from anthropic.types import Message  # here, since each process collects all tests and few run this one

    made = to_anthropic_message(validate_response(response(*output, **more)), "policy")
    Message.model_validate(made)
    return made


def test_settings_get_the_names_of_the_responses_api() -> None:
    made = params(temperature=0.5, top_p=0.9, metadata={"user_id": "u"}, output_config={"effort": "low"})

    assert made == {
        "input": [{"type": "message", **user("q")}],
        "max_output_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "user": "u",
        "reasoning": {"effort": "low"},
    }


def test_settings_that_the_responses_api_lacks_are_dropped_with_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymq.responses.errors._reported", set())
    assert params(stop_sequences=["x"], top_k=5) == params(stop_sequences=[])
    assert [message.split(" is dropped")[0] for message in caplog.messages] == [
        "the request's field 'stop_sequences'",
        "the request's field 'top_k'",
    ]


def test_the_system_prompt_is_the_instructions_block_by_block() -> None:
    blocks = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]

    assert params(system="a")["instructions"] == "a"
    assert params(system=blocks)["instructions"] == "a\n\nb"


def test_tools_and_choices_are_translated() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    made = params(
        tools=[{"name": "f", "description": "Does f.", "input_schema": schema}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )

    assert made["tools"] == [
        {"type": "function", "name": "f", "description": "Does f.", "parameters": schema, "strict": None}
    ]
    assert (made["tool_choice"], made["parallel_tool_calls"]) == ("required", False)
    named = params(tool_choice={"type": "tool", "name": "f"})["tool_choice"]
    assert named == {"type": "function", "name": "f"}


def test_a_schema_for_the_answer_is_passed_on() -> None:
    made = params(output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}})

    assert made["text"]["format"]["schema"] == {"type": "object"}


TEXT_BLOCK = {"type": "text", "text": "bad"}
CONVERSATION = [
    user("How much is 1 + 2?"),
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Add.", "signature": ""},
            {"type": "text", "text": "Let me "},
            {"type": "text", "text": "see."},
            {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1, "b": 2}},
            {"type": "tool_use", "id": "c2", "name": "add", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "3"},
            {
                "type": "tool_result",
                "tool_use_id": "c2",
                "content": [{"type": "text", "text": "bad"}],
                "is_error": True,
            },
            {"type": "text", "text": "Go on."},
        ],
    },
]


def test_a_conversation_with_tools_becomes_items_in_its_order() -> None:
    from anthropic.types import MessageCreateParams

    official: TypeAdapter[Any] = TypeAdapter(MessageCreateParams)
    official.validate_python({"model": "m", "max_tokens": 9, "messages": CONVERSATION})

    made = items(*CONVERSATION)

    assert [item["type"] for item in made] == [
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ]
    assert made[2]["content"] == "Let me see."
    assert json.loads(made[3]["arguments"]) == {"a": 1, "b": 2}
    assert [made[5]["output"], made[6]["output"]] == ["3", "bad"]


def test_a_conversation_with_tools_can_be_sent_to_a_chat_endpoint() -> None:
    chat = responses_to_chat(params(messages=CONVERSATION))

    assert [message["role"] for message in chat["messages"]] == ["user", "assistant", "tool", "tool", "user"]
    assert chat["messages"][1]["content"] == "<think>Add.</think>Let me see."


def test_images_and_documents_become_parts() -> None:
    (made,) = items(
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
                {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"}},
                {"type": "text", "text": "What is it?"},
            ],
        }
    )

    assert made["content"] == [
        {"type": "input_image", "image_url": "data:image/png;base64,QUJD", "detail": "auto"},
        {"type": "input_image", "image_url": "https://a/b.png", "detail": "auto"},
        {"type": "input_text", "text": "words"},
        {"type": "input_file", "filename": "document", "file_data": "data:application/pdf;base64,QUJD"},
        {"type": "input_text", "text": "What is it?"},
    ]


def test_a_tool_may_answer_with_an_image_or_with_nothing() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}
    shown, silent = items(
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [image]},
                {"type": "tool_result", "tool_use_id": "c2"},
            ],
        }
    )

    assert shown["output"][0]["type"] == "input_image"
    assert silent["output"] == ""


def test_a_system_message_in_the_middle_keeps_its_place():
    body: dict[str, Any] = {
        "max_tokens": 5,
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "system", "content": [{"type": "text", "text": "the tools have changed"}]},
        ],
    }
    items = from_anthropic_request(body)["input"]
    assert [item["role"] for item in items] == ["user", "system"]
    body["messages"][1]["content"] = [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]
    with pytest.raises(InvalidRequest, match=r"messages\[1\]\.content\[0\]\.type: .*role system"):
        from_anthropic_request(body)


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "robot"}]}]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}]},
            "messages[0].content[0].type",
        ),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_its_path(request_: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        params(**request_)

    assert caught.value.path == path


def test_a_request_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        from_anthropic_request([])


def test_a_turn_becomes_blocks_in_its_order() -> None:
    made = message(reasoning("Hm.", "So."), assistant("Yes."), call("c1", "add", '{"a": 1}'), usage=USAGE)

    assert made["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "thinking", "thinking": "So.", "signature": ""},
        {"type": "text", "text": "Yes."},
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
    ]
    assert (made["model"], made["stop_reason"]) == ("policy", "tool_use")


def test_cached_tokens_are_not_counted_as_input() -> None:
    usage = message(assistant("a"), usage=USAGE)["usage"]

    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (6, 4, 3)


def test_a_reply_without_usage_has_counted_nothing() -> None:
    assert message(assistant("a"))["usage"] == {"input_tokens": 0, "output_tokens": 0}


@pytest.mark.parametrize(
    ("incomplete", "stop_reason"),
    [(None, "end_turn"), ("max_output_tokens", "max_tokens"), ("content_filter", "refusal")],
)
def test_the_reason_for_the_end_is_told(incomplete: str | None, stop_reason: str) -> None:
    details = {"reason": incomplete} if incomplete else None

    assert message(assistant("a"), incomplete_details=details)["stop_reason"] == stop_reason


def test_a_cut_off_call_is_not_told_as_a_call_to_run() -> None:
    made = message(call(arguments='{"a'), incomplete_details={"reason": "max_output_tokens"})

    assert made["stop_reason"] == "max_tokens"


def test_a_refusal_is_told_as_one() -> None:
    refusal = {**assistant(""), "content": [{"type": "refusal", "refusal": "No."}]}

    made = message(refusal)

    assert (made["content"], made["stop_reason"]) == ([{"type": "text", "text": "No."}], "refusal")


def test_the_call_of_a_hosted_tool_cannot_be_said() -> None:
    with pytest.raises(InvalidReply) as caught:
        message({"type": "web_search_call", "id": "w"})

    assert caught.value.path == "output[0].type"


ARGUMENTS = st.one_of(
    st.sampled_from(["", "{", "[1]", "null", '{"a": NaN}', '{"a": "ü"}', "{}"]),
    st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3)).map(
        lambda value: json.dumps(value, ensure_ascii=False)
    ),
)
TURN = st.builds(
    lambda thought, text, arguments: [
        *([reasoning(thought)] if thought else []),
        *([assistant(text)] if text else []),
        *(call(f"c{position}", arguments=value) for position, value in enumerate(arguments)),
    ],
    st.text(max_size=5),
    st.text(max_size=5),
    st.lists(ARGUMENTS, max_size=2),
).filter(bool)


@given(TURN)
def test_a_turn_that_comes_back_as_history_is_the_same_prompt(turn: list[dict[str, Any]]) -> None:
    history = [{"role": "assistant", "content": message(*turn)["content"]}]

    assert responses_to_chat(params(messages=history))["messages"] == responses_to_chat({"input": turn})["messages"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "source", "input", "name", "id", "content"]), inner)
    ),
    max_leaves=6,
)


@given(JSON, JSON, JSON)
def test_whatever_the_request_the_only_error_is_a_refusal(content: Any, tools: Any, choice: Any) -> None:
    body = {"max_tokens": 1, "messages": [{"role": "user", "content": content}], "tools": tools, "tool_choice": choice}
    try:
        validate_params(from_anthropic_request(body))
    except InvalidRequest:
        return
