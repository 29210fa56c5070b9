"""A Responses request says the same in chat."""

import json
from array import array
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

from gymq.ext.conversion.arguments import UNPARSED_ARGUMENTS
from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.responses import InvalidRequest, errors, validate_params
from tests.responses.builders import assistant, call, output, reasoning, tokens, tool, user


def messages(*items: Any, token_ids: bool = False, **params: Any) -> list[dict[str, Any]]:
    return responses_to_chat(validate_params({"input": list(items), **params}), token_ids=token_ids)["messages"]


def settings(**params: Any) -> dict[str, Any]:
    request = responses_to_chat(validate_params({"input": "x", **params}))
    del request["messages"]
    return request


def test_image_keeps_its_detail() -> None:
    part = {"type": "input_image", "image_url": "http://i/1.png", "detail": "low"}

    [message] = messages({"role": "user", "content": [part]})

    assert message["content"] == [{"type": "image_url", "image_url": {"url": "http://i/1.png", "detail": "low"}}]


def test_image_without_detail_gets_auto() -> None:
    [message] = messages({"role": "user", "content": [{"type": "input_image", "image_url": "http://i/1.png"}]})

    assert message["content"][0]["image_url"]["detail"] == "auto"


def test_video_becomes_a_video_url() -> None:
    [message] = messages({"role": "user", "content": [{"type": "input_video", "video_url": "http://v/1.mp4"}]})

    assert message["content"] == [{"type": "video_url", "video_url": {"url": "http://v/1.mp4"}}]


def test_reasoning_stays_at_its_place_between_texts() -> None:
    [_, message] = messages(user("q"), assistant("a"), reasoning("r"), assistant("b"))

    assert message == {"role": "assistant", "content": "a<think>r</think>b"}


def test_reasoning_that_is_not_summarized_is_not_lost() -> None:
    item = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]}

    assert messages(item) == [{"role": "assistant", "content": "<think>r</think>"}]


def test_empty_reasoning_adds_no_tags() -> None:
    [message] = messages(reasoning("", "r"))

    assert message["content"] == "<think>r</think>"


@pytest.mark.parametrize("item", [assistant(""), reasoning(), reasoning(""), {"role": "assistant", "content": ""}])
def test_an_assistant_item_without_text_is_still_a_turn(item: dict[str, Any]) -> None:
    # OpenAI refuses null as the content of a turn without calls.
    assert messages(item, user("go on")) == [{"role": "assistant", "content": ""}, user("go on")]


def test_refusals_contribute_no_text() -> None:
    parts = [
        {"type": "output_text", "text": "a"},
        {"type": "refusal", "refusal": "no"},
        {"type": "output_text", "text": "b"},
    ]

    assert messages({"role": "assistant", "content": parts})[0]["content"] == "ab"


def test_a_turn_that_an_agent_has_extended_is_not_what_was_sampled() -> None:
    [turn] = messages(assistant("a", **tokens([1], [2])), assistant("b"), token_ids=True)

    assert turn == {"role": "assistant", "content": "ab"}


def test_a_call_after_a_tool_output_starts_a_new_turn() -> None:
    roles = [message["role"] for message in messages(call("c1"), output("c1"), call("c2"), output("c2"))]

    assert roles == ["assistant", "tool", "assistant", "tool"]


def test_arguments_that_are_no_object_are_sent_as_one() -> None:
    [message] = messages(call(arguments='{"x" : '))

    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {UNPARSED_ARGUMENTS: '{"x" : '}


def test_tool_output_in_parts_becomes_text_parts() -> None:
    [message] = messages(output(value=[{"type": "input_text", "text": "a"}]))

    assert message == {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a"}]}


def test_chat_shaped_history_is_understood() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
    history = [
        {"role": "assistant", "content": "hm", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]

    assert messages(*history) == history


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ({"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}, "input[1].content[0].type"),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, "input[1].content[0].type"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}, "input[1].content[0].file_id"),
        ({"role": "assistant", "content": [{"type": "input_image", "image_url": "u"}]}, "input[1].content[0].type"),
        (output(value=[{"type": "input_file", "file_id": "f"}]), "input[1].output[0].type"),
    ],
)
def test_what_chat_cannot_say_is_unsupported(item: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        messages(user("a"), item)

    assert caught.value.path == path


def test_a_tool_may_answer_with_a_picture() -> None:
    [message] = messages(output("c1", [{"type": "input_text", "text": "A"}, {"type": "input_image", "image_url": "u"}]))

    picture = {"type": "image_url", "image_url": {"url": "u", "detail": "auto"}}
    assert message["content"] == [{"type": "text", "text": "A"}, picture]


def test_a_call_of_another_tool_is_one_of_a_function() -> None:
    custom = {"type": "custom_tool_call", "id": "c", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"}
    shell = {"type": "shell_call", "call_id": "c2", "action": {"commands": ["ls"]}, "status": "completed"}
    outputs = [
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done"},
        {"type": "shell_call_output", "call_id": "c2", "output": [{"stdout": "a"}]},
    ]
    turn, first, second = messages(custom, shell, *outputs)
    assert [call["function"] for call in turn["tool_calls"]] == [
        {"name": "apply_patch", "arguments": '{"input": "*** Begin"}'},
        {"name": "shell", "arguments": '{"action": {"commands": ["ls"]}}'},
    ]
    assert first == {"role": "tool", "tool_call_id": "c1", "content": "Done"}
    assert second == {"role": "tool", "tool_call_id": "c2", "content": '{"output": [{"stdout": "a"}]}'}


def test_what_is_no_part_of_a_call_is_dropped_with_one_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "_reported", set())
    searched = {"type": "web_search_call", "id": "w", "status": "completed"}
    assert messages(user("a"), searched, assistant("b"), searched) == messages(user("a"), assistant("b"))
    assert caplog.messages == ["items of type 'web_search_call' are dropped: Chat Completions has no place for them"]


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ({"role": "user", "content": [{"type": "input_image", "image_url": ""}]}, "input[0].content[0].image_url"),
        ({"role": "user", "content": [{"type": "input_image"}]}, "input[0].content[0].image_url"),
        ({"role": "user", "content": [{"type": "input_video", "video_url": ""}]}, "input[0].content[0].video_url"),
    ],
)
def test_what_chat_needs_must_be_there(item: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        messages(item)

    assert caught.value.path == path


def test_settings_keep_their_names_if_the_caller_set_them() -> None:
    same = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_logprobs": 2,
        "user": "u",
        "metadata": {"k": "v"},
        "model": "m",
        "store": False,
        "service_tier": "auto",
        "stream": False,
    }

    assert settings(**same) == {**same, "logprobs": True}  # which chat wants beside the number of alternatives


def test_settings_that_chat_lacks_are_dropped_with_one_warning_for_each_name(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymq.responses.errors._reported", set())
    lacking = {"truncation": "auto", "max_tool_calls": 0, "prompt": {"id": "p"}}
    for _ in range(2):
        assert settings(include=[], background=False, text={}, prompt_cache_key=None, **lacking) == {}
    assert caplog.messages == [
        f"the request's field {name!r} is dropped: Chat Completions has no place for it" for name in lacking
    ]


@pytest.mark.parametrize("name", ["previous_response_id", "conversation"])
def test_a_conversation_that_only_an_id_names_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{name}: .* send all items in `input`"):
        settings(**{name: "some_1"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ({"format": {"type": "text"}}, {}),
        (
            {"format": {"type": "json_object"}, "verbosity": "low"},
            {"verbosity": "low", "response_format": {"type": "json_object"}},
        ),
        (
            {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
                }
            },
        ),
    ],
)
def test_the_form_of_the_reply_is_passed_on(text: dict[str, Any], said: dict[str, Any]) -> None:
    assert settings(text=text) == said


def test_null_settings_are_left_out() -> None:
    assert settings(temperature=None, max_output_tokens=None, reasoning=None, metadata=None, tools=None) == {}


def test_zero_output_tokens_are_passed_on() -> None:
    assert settings(max_output_tokens=0) == {"max_tokens": 0}


def test_reasoning_effort_is_passed_on() -> None:
    assert settings(reasoning={"effort": "high", "summary": "auto"}) == {"reasoning_effort": "high"}


def test_tools_lose_strict_and_keep_the_choice() -> None:
    function = {name: value for name, value in tool().items() if name not in ("type", "strict")}

    assert settings(tools=[tool()], tool_choice="required", parallel_tool_calls=False) == {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }


def test_strict_is_kept_where_it_is_asked_for() -> None:
    tools = [tool("f"), tool("g", strict=False), {"type": "custom", "name": "h"}]
    sent = responses_to_chat(validate_params({"input": "hi", "tools": tools}), strict=True)["tools"]
    assert [one["function"].get("strict") for one in sent] == [True, None, None]


@pytest.mark.parametrize("name", ["f", "say"])
def test_the_choice_of_a_tool_names_its_function(name: str) -> None:
    kind = "custom" if name == "say" else "function"
    sent = settings(tools=[tool("f"), {"type": "custom", "name": "say"}], tool_choice={"type": kind, "name": name})
    assert sent["tool_choice"] == {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(("mode", "sent"), [("required", "required"), ("auto", "auto")])
def test_of_a_choice_among_some_tools_the_mode_is_left(mode: str, sent: str) -> None:
    allowed = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "f"}]}
    assert settings(tools=[tool("f"), tool("g")], tool_choice=allowed)["tool_choice"] == sent


def test_of_a_tool_what_is_null_is_left_out() -> None:
    said = settings(tools=[tool("f", parameters=None, description=None)])
    assert said["tools"] == [{"type": "function", "function": {"name": "f"}}]


@pytest.mark.parametrize("tools", [{}, {"tools": []}, {"tools": None}])
def test_without_tools_there_is_no_choice_to_send(tools: dict[str, Any]) -> None:
    assert settings(tool_choice="auto", parallel_tool_calls=True, **tools) == {}


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"tool_choice": "required"}, InvalidRequest),
        ({"tools": [tool("f")], "tool_choice": {"type": "function", "name": "g"}}, InvalidRequest),
    ],
)
def test_tools_that_chat_cannot_take_are_refused(params: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="tool"):
        settings(**params)


def test_instructions_come_first() -> None:
    assert messages(user("a"), instructions="Base.") == [{"role": "system", "content": "Base."}, user("a")]


def test_instructions_come_first_before_a_string() -> None:
    request = responses_to_chat(validate_params({"input": "a", "instructions": "Base."}))

    assert [message["role"] for message in request["messages"]] == ["system", "user"]


def test_a_system_message_after_an_assistant_turn_is_not_folded() -> None:
    late = {"role": "system", "content": "late"}

    assert messages(assistant("a"), late, instructions="Base.")[-1] == late


def test_an_image_cannot_be_folded_into_instructions() -> None:
    picture = {"role": "system", "content": [{"type": "input_image", "image_url": "u"}]}

    with pytest.raises(InvalidRequest) as caught:
        messages({"role": "system", "content": "a"}, picture, instructions="Base.")

    assert caught.value.path == "input[1].content"


def test_token_fields_of_the_last_item_go_on_the_message_untouched() -> None:
    last = tokens(array("i", [1, 2]), array("i", [3]), array("f", [-0.5]))

    [message] = messages(reasoning("r", **tokens([9], [9])), call("c2"), call(**last), token_ids=True)

    assert all(message[name] is last[name] for name in last)


def test_routing_travels_with_the_tokens() -> None:
    [message] = messages(assistant("a", **tokens([1], [2]), routed_experts="nrlre1:..."), token_ids=True)

    assert message["routed_experts"] == "nrlre1:..."


def test_empty_token_lists_are_passed_on() -> None:
    [message] = messages(assistant("a", **tokens([], [])), token_ids=True)

    assert message == {"role": "assistant", "content": "a", **tokens([], [])}


def test_token_fields_are_not_inherited_by_a_later_turn() -> None:
    turns = messages(assistant("a", **tokens([1], [2])), user("b"), assistant("c"), token_ids=True)

    assert turns[-1] == {"role": "assistant", "content": "c"}


def test_without_token_tracking_no_token_fields_are_sent() -> None:
    [message] = messages(assistant("a", **tokens([1], [2])))

    assert message == {"role": "assistant", "content": "a"}


def test_the_request_is_not_changed() -> None:
    params = {"input": [user("a"), call(), output()], "tools": [tool()], "instructions": "x"}
    before = repr(params)

    responses_to_chat(validate_params(params))

    assert repr(params) == before


def test_openai_accepts_what_we_send() -> None:
    items = [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}]},
        reasoning("r"),
        call(),
        output(),
        reasoning(),
        user("b"),
    ]
    params = {"input": items, "tools": [tool()], "model": "m", "max_output_tokens": 5, "reasoning": {"effort": "low"}}

    request = responses_to_chat(validate_params(params))

    TypeAdapter(CompletionCreateParamsNonStreaming).validate_python(request)
    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(request["messages"])


def test_tools_that_chat_does_not_have_are_dropped_with_one_warning_for_each_type(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymq.responses.errors._reported", set())
    tools = [{"type": "web_search"}, tool("f"), {"type": "custom", "name": "grep"}, {"type": "web_search"}]
    for _ in range(2):
        request = responses_to_chat(validate_params({"input": "hi", "tools": tools}))
    assert [each["function"]["name"] for each in request["tools"]] == ["f", "grep"]
    assert [record.getMessage().partition(" are")[0] for record in caplog.records] == [
        "tools of type 'web_search'",
    ]


def test_a_custom_tool_is_a_function_with_one_text() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
    custom = {"type": "custom", "name": "say", "description": "Says a word.", "format": grammar}

    [sent] = responses_to_chat(validate_params({"input": "hi", "tools": [custom]}))["tools"]

    given = {"type": "string", "description": "Text that follows this grammar (lark):\nstart: WORD"}
    parameters = {"type": "object", "properties": {"input": given}, "required": ["input"]}
    function = {"name": "say", "description": "Says a word.", "parameters": parameters}
    assert sent == {"type": "function", "function": function}


@pytest.mark.parametrize("choice", ["required", {"type": "web_search"}])
def test_without_any_other_tool_there_are_none(choice: str | dict[str, Any]) -> None:
    assert settings(tools=[{"type": "web_search"}], tool_choice=choice) == {}
