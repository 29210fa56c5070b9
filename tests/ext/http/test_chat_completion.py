"""A Responses object says the same as a chat completion."""

from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from gymq.ext.conversion.from_chat import chat_choice_to_items
from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.ext.http.chat_completion import to_chat_completion
from gymq.ext.http.chat_request import chat_messages_to_items
from gymq.responses import InvalidReply, validate_response
from tests.responses.builders import assistant, call, reasoning, response, tokens

USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": None},
    "total_tokens": 13,
}


def completion(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = to_chat_completion(validate_response(response(*output, **more)))
    ChatCompletion.model_validate(made)
    return made


def test_a_turn_becomes_one_message() -> None:
    (choice,) = completion(reasoning("r"), assistant("a"), call("c1", "add", '{"a": 1}'))["choices"]

    assert choice["message"] == {
        "role": "assistant",
        "content": "a",
        "refusal": None,
        "reasoning_content": "r",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}],
    }
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("incomplete", "finish_reason"),
    [(None, "stop"), ("max_output_tokens", "length"), ("content_filter", "content_filter")],
)
def test_the_reason_for_the_end_is_told(incomplete: str | None, finish_reason: str) -> None:
    details = {"reason": incomplete} if incomplete else None

    made = completion(assistant("a"), incomplete_details=details)

    assert made["choices"][0]["finish_reason"] == finish_reason


def test_usage_gets_the_names_of_chat() -> None:
    assert completion(assistant("a"), usage=USAGE)["usage"] == {
        "prompt_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens": 3,
        "completion_tokens_details": {"reasoning_tokens": None},
        "total_tokens": 13,
    }


def test_token_fields_stand_on_the_message() -> None:
    made = completion(assistant("a", **tokens([1], [2])))

    assert made["choices"][0]["message"] | tokens([1], [2]) == made["choices"][0]["message"]


def test_the_message_comes_back_as_the_same_turn() -> None:
    turn = [reasoning("r"), assistant("a"), call("c1")]

    message = completion(*turn)["choices"][0]["message"]

    again = chat_messages_to_items([message])
    assert responses_to_chat({"input": again})["messages"] == responses_to_chat({"input": turn})["messages"]
    assert [item["type"] for item in chat_choice_to_items({"message": message}, split_reasoning=False)] == [
        "message",
        "function_call",
    ]


def test_a_refusal_comes_back_as_one() -> None:
    said = [{"type": "output_text", "text": "Well.", "annotations": []}, {"type": "refusal", "refusal": "No."}]

    message = completion(assistant("", content=said))["choices"][0]["message"]

    [item] = chat_choice_to_items({"message": message}, split_reasoning=False)
    assert item["content"] == said
    [again] = chat_messages_to_items([message])
    assert again["content"] == [{"type": "output_text", "text": "Well."}, {"type": "refusal", "refusal": "No."}]
    assert responses_to_chat({"input": [item]})["messages"] == [
        {"role": "assistant", "content": "Well.", "refusal": "No."}
    ]


def test_what_a_text_cites_comes_back() -> None:
    cited = {"type": "url_citation", "start_index": 0, "end_index": 1, "url": "http://a", "title": "A"}
    of_file = {"type": "file_citation", "file_id": "f", "index": 0, "filename": "f"}  # chat has no form for it
    parts = [
        {"type": "output_text", "text": "Hm: "},
        {"type": "output_text", "text": "a", "annotations": [of_file, cited]},
    ]

    message = completion(assistant("", content=parts))["choices"][0]["message"]

    [item] = chat_choice_to_items({"message": message}, split_reasoning=False)
    moved = {**cited, "start_index": 4, "end_index": 5}
    assert item["content"] == [{"type": "output_text", "text": "Hm: a", "annotations": [moved]}]


@pytest.mark.parametrize("content", [None, ""])
def test_a_refusal_alone_is_no_empty_text(content: str | None) -> None:
    message = {"role": "assistant", "content": content, "refusal": "No."}

    refusal = [{"type": "refusal", "refusal": "No."}]
    assert [item["content"] for item in chat_choice_to_items({"message": message}, split_reasoning=False)] == [refusal]
    assert [item["content"] for item in chat_messages_to_items([message])] == [refusal]


def test_the_call_of_a_custom_tool_comes_back_as_one() -> None:
    custom = {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** Begin"}

    made = completion(custom)["choices"][0]

    assert made["finish_reason"] == "tool_calls"
    assert chat_messages_to_items([made["message"]]) == [custom]


def test_the_call_of_a_hosted_tool_cannot_be_said() -> None:
    with pytest.raises(InvalidReply) as caught:
        completion(assistant("a"), {"type": "web_search_call", "id": "w"})

    assert caught.value.path == "output[1].type"
