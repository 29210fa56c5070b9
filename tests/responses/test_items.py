"""Reading texts and calls out of a response."""

from typing import Any

import pytest

from gymq.responses import (
    assistant_text,
    conclusion,
    content_text,
    first_text_of_last_item,
    function_call_output,
    function_calls,
    last_assistant_text,
    output_text,
    overflowed,
    split_at_first_generated,
    user_contents,
    user_message,
    validate_params,
)
from gymq.responses.items import function_call as call_item
from gymq.testing import function_call, reply

from .builders import assistant, call, output, reasoning, response, user

REFUSAL = {"type": "refusal", "refusal": "no"}
MIXED = response(
    reasoning("thought"),
    assistant(" a "),
    call(),
    output(value="tool text"),
    {"type": "message", "role": "user", "content": "u"},
    assistant("", content=[{"type": "output_text", "text": "b"}, REFUSAL, {"type": "output_text", "text": "c "}]),
)


def test_all_text_reads_every_message_untrimmed() -> None:
    assert output_text(MIXED) == " a ubc "


def test_all_text_reads_only_output_text_parts() -> None:
    parts = [{"type": "input_text", "text": "x"}, {"type": "output_text", "text": "y"}]

    assert output_text(response({"type": "message", "role": "user", "content": parts})) == "y"


def test_assistant_text_reads_assistant_messages_by_line() -> None:
    assert assistant_text(MIXED) == "a \nb\nc"


def test_last_assistant_text_reads_one_message() -> None:
    assert last_assistant_text(MIXED) == "b\nc"


def test_last_assistant_text_does_not_fall_back_to_an_earlier_message() -> None:
    assert last_assistant_text(response(assistant("a"), assistant("", content=[REFUSAL]))) == ""


@pytest.mark.parametrize("read", [output_text, assistant_text, last_assistant_text])
def test_no_message_is_no_text(read) -> None:
    assert read(response(reasoning("a"), call(), output())) == ""


def test_function_calls_come_in_order() -> None:
    calls = [call("c1"), call("c2")]

    assert function_calls(response(calls[0], assistant("a"), calls[1], output())) == calls


def test_made_items_are_valid_items() -> None:
    made = [user_message("hi"), function_call_output("c1", "3")]

    assert validate_params({"input": made})["input"] == made


@pytest.mark.parametrize("arguments", [{"a": 1}, '{"a": 1}'])
def test_arguments_are_given_as_an_object_or_as_text(arguments: Any) -> None:
    assert call_item("add", arguments, "c1")["arguments"] == '{"a": 1}'


@pytest.mark.parametrize("generated", [assistant("a"), call(), reasoning("r"), {"type": "web_search_call"}])
def test_a_trajectory_is_split_at_the_first_item_a_model_made(generated: dict[str, Any]) -> None:
    prompt = [{"role": "system", "content": "s"}, user("q"), output("c0")]

    assert split_at_first_generated([*prompt, generated, output(), user("x")]) == (
        prompt,
        [generated, output(), user("x")],
    )


def test_a_prompt_alone_has_nothing_generated() -> None:
    assert split_at_first_generated([user("q")]) == ([user("q")], [])


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ([], ""),
        (["first", "last"], "last"),
        (["first", function_call("go", {})], ""),
        (["first", {"type": "reasoning", "summary": []}], ""),
        ([{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}], ""),
        ([{"type": "message", "role": "assistant", "content": "plain"}], "plain"),
        ([{"type": "message", "role": "assistant", "content": []}], ""),
        ([{"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}], ""),
    ],
)
def test_the_first_text_of_the_last_item_counts(output, text):
    assert first_text_of_last_item(reply(*output)) == text


def test_user_messages_are_found_in_every_form_of_input() -> None:
    parts = [{"type": "input_text", "text": "b"}, {"type": "input_image", "image_url": "x"}]
    given: list[Any] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        {"type": "message", "role": "user", "content": parts},
        {"type": "function_call_output", "call_id": "1", "output": "o"},
    ]
    assert [content_text(content) for content in user_contents({"input": given})] == ["a", "b"]
    assert user_contents({"input": "plain"}) == ["plain"]
    assert user_contents({"input": []}) == []


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("4", "4"),
        ("<think>a</think>4", "4"),
        ("a</think>b</think>4", "4"),
        (" <think>a", ""),
        ("4 <think>a", "4 <think>a"),
    ],
)
def test_the_conclusion_follows_all_thoughts(text, after):
    assert conclusion(text) == after


@pytest.mark.parametrize(
    ("items", "more", "is_full"),
    [
        ([], {}, True),
        ([assistant("")], {}, True),
        ([assistant("a")], {}, False),
        ([reasoning()], {}, False),
        ([assistant("")], {"usage": {"output_tokens": 1}}, False),
        ([], {"incomplete_details": {"reason": "content_filter"}}, False),
        ([], {"incomplete_details": None}, False),
    ],
)
def test_a_context_is_full_if_a_reply_is_cut_before_its_first_token(items, more, is_full) -> None:
    cut = {"incomplete_details": {"reason": "max_output_tokens"}}
    assert overflowed(response(*items, **{**cut, **more})) == is_full
