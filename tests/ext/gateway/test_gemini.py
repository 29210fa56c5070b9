"""Requests and answers of Gemini's dialect as those of Responses, and back."""

import json
from typing import Any

import pytest

from gymq.ext.gateway.from_gemini import from_gemini_request
from gymq.ext.gateway.to_gemini import to_gemini_answer
from gymq.responses import InvalidRequest, validate_params
from gymq.testing import function_call, reply


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


HI = user({"text": "hi"})


def converted(*contents: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The parameters, which also have to be valid."""
    params = from_gemini_request({"contents": list(contents), **fields})
    return validate_params(params)


def test_texts_of_one_content_are_one_message() -> None:
    params = converted(user({"text": "a"}, {"text": "b"}), model({"text": "c"}, {"text": "d"}), HI)
    assert [(item["role"], item["content"]) for item in params["input"]] == [
        ("user", [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]),
        ("assistant", "cd"),
        ("user", "hi"),
    ]


def test_calls_and_their_responses_become_items() -> None:
    call = {"functionCall": {"id": "c1", "name": "add", "args": {"a_b": 1}}}
    answered = {"functionResponse": {"id": "c1", "name": "add", "response": {"output": "2"}}}
    items = converted(HI, model({"text": "Let me see."}, call), user(answered))["input"]
    assert [item["type"] for item in items] == ["message", "message", "function_call", "function_call_output"]
    assert (items[2]["call_id"], json.loads(items[2]["arguments"])) == ("c1", {"a_b": 1})
    assert (items[3]["call_id"], items[3]["output"]) == ("c1", "2")


def test_calls_without_ids_are_answered_in_order_of_their_names() -> None:
    def call(name: str) -> dict[str, Any]:
        return {"functionCall": {"name": name, "args": {}}}

    def answered(name: str, value: int) -> dict[str, Any]:
        return {"functionResponse": {"name": name, "response": {"value": value}}}

    contents = [HI, model(call("a"), call("b"), call("a")), user(answered("b", 1), answered("a", 2), answered("a", 3))]
    items = converted(*contents)["input"]
    calls, outputs = items[1:4], items[4:]
    assert [output["call_id"] for output in outputs] == [calls[index]["call_id"] for index in (1, 0, 2)]
    assert [json.loads(output["output"]) for output in outputs] == [{"value": 1}, {"value": 2}, {"value": 3}]


def test_a_response_to_no_call_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"contents\[1\].parts\[0\].functionResponse: answers no call of 'add'"):
        converted(HI, user({"functionResponse": {"name": "add", "response": {}}}))


def test_media_become_images_and_files() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "QQ=="}}
    file = {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.org/a.pdf"}}
    (message,) = converted(user({"text": "See"}, image, file))["input"]
    assert [part["type"] for part in message["content"]] == ["input_text", "input_image", "input_file"]
    assert message["content"][1]["image_url"] == "data:image/png;base64,QQ=="


def test_thoughts_become_reasoning() -> None:
    thought = {"text": "Hm.", "thought": True, "thoughtSignature": "s"}
    item = converted(HI, model(thought, {"text": "a"}), HI)["input"][1]
    assert (item["type"], item["summary"][0]["text"], item["encrypted_content"]) == ("reasoning", "Hm.", "s")


def test_settings_have_their_counterparts() -> None:
    config = {
        "temperature": 0.5,
        "topP": 0.9,
        "topK": 64,
        "maxOutputTokens": 7,
        "thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True},
        "responseMimeType": "application/json",
        "responseSchema": {
            "type": "OBJECT",
            "properties": {"type": {"type": "STRING", "enum": ["STRING"]}, "example": {"type": "NULL"}},
        },
    }
    params = converted(HI, generationConfig=config, systemInstruction={"parts": [{"text": "a"}, {"text": "b"}]})
    assert (params["temperature"], params["top_p"], params["max_output_tokens"]) == (0.5, 0.9, 7)
    assert (params["instructions"], params["reasoning"]["effort"]) == ("a\n\nb", "low")
    schema = {
        "type": "object",
        "properties": {"type": {"type": "string", "enum": ["STRING"]}, "example": {"type": "null"}},
    }
    assert params["text"]["format"]["schema"] == schema


def test_names_may_have_underscores() -> None:
    tools = [{"function_declarations": [{"name": "add", "parameters_json_schema": {"type": "object", "a_b": {}}}]}]
    params = converted(HI, tools=tools, generation_config={"max_output_tokens": 7})
    assert params["max_output_tokens"] == 7
    assert params["tools"][0]["parameters"] == {"type": "object", "a_b": {}}


@pytest.mark.parametrize(
    ("config", "choice"),
    [
        ({"mode": "AUTO"}, "auto"),
        ({"mode": "NONE"}, "none"),
        ({"mode": "ANY"}, "required"),
        ({"mode": "ANY", "allowedFunctionNames": ["add"]}, {"type": "function", "name": "add"}),
    ],
)
def test_the_choice_of_tools_is_passed_on(config: dict[str, Any], choice: Any) -> None:
    tools = [{"functionDeclarations": [{"name": "add"}]}, {"googleSearch": {}}]
    params = converted(HI, tools=tools, toolConfig={"functionCallingConfig": config})
    assert params["tool_choice"] == choice
    assert [tool["name"] for tool in params["tools"]] == ["add"]  # Google's own tool is dropped


def test_settings_that_the_responses_api_lacks_are_dropped_with_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymq.responses.errors._reported", set())
    assert converted(HI, generationConfig={"stopSequences": ["x"], "topK": 64}) == converted(HI)
    assert [message.split(" is dropped")[0] for message in caplog.messages] == [
        "the request's field 'generationConfig.stopSequences'",
        "the request's field 'generationConfig.topK'",
    ]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"generationConfig": {"candidateCount": 2}}, "generationConfig.candidateCount"),
        ({"cachedContent": "cachedContents/1"}, "cachedContent"),
    ],
)
def test_what_would_change_the_answer_is_refused(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest, match=path):
        converted(HI, **fields)


def test_an_answer_comes_back_as_the_same_items() -> None:
    said = reply("Let me see.", function_call("add", {"a": 1}, "c1"), function_call("add", "{broken", "c2"))
    answer = to_gemini_answer(said, "gemini")
    (candidate,) = answer["candidates"]
    assert candidate["finishReason"] == "STOP"
    items = converted(HI, candidate["content"])["input"][1:]
    assert items[0]["content"] == "Let me see."
    assert [(item["call_id"], item["name"], item["arguments"]) for item in items[1:]] == [
        ("c1", "add", '{"a": 1}'),
        ("c2", "add", "{broken"),
    ]


@pytest.mark.parametrize(("reason", "finish"), [("max_output_tokens", "MAX_TOKENS"), ("content_filter", "SAFETY")])
def test_an_answer_that_was_cut_short_says_why(reason: str, finish: str) -> None:
    answer = to_gemini_answer(reply("a") | {"incomplete_details": {"reason": reason}}, "gemini")
    assert answer["candidates"][0]["finishReason"] == finish
