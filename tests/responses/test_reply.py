"""What a model answered is checked before anybody builds on it."""

from typing import Any

import pytest

from gymq.responses import InvalidReply, validate_response

from .builders import assistant, call, output, reasoning, response, tokens

USAGE = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}


def test_a_reply_is_kept_as_it_is() -> None:
    body = response(reasoning("a"), assistant("b", **tokens([1], [2])), call(), extra={"x": 1}, usage=None)

    assert validate_response(body) == body


def test_a_call_without_arguments_is_accepted_for_the_agent_to_answer() -> None:
    body = response({"type": "function_call", "call_id": "c", "name": "f"})

    assert validate_response(body) == body


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ("oops", "expected a Responses object"),
        ({"error": "busy"}, "Object missing required field"),
        (response(object="chat.completion"), "object:"),
        (response(output=None), "output:"),
        (response(output=["a"]), "output[0]:"),
        (response(usage={"input_tokens": 1}), "usage:"),
        (response(usage={"input_tokens": "1", "output_tokens": 1, "total_tokens": 2}), "usage.input_tokens:"),
        (response(usage={**USAGE, "input_tokens_details": {"cached_tokens": "2"}}), "usage.input_tokens_details."),
        (response(usage={**USAGE, "output_tokens_details": {"reasoning_tokens": []}}), "usage.output_tokens_details."),
        (response(incomplete_details="length"), "incomplete_details:"),
        (response({"role": "assistant", "content": "a"}), "output[0].type:"),
        (response(assistant("a"), {"type": "telepathy"}), "output[1].type:"),
        (response({**call(), "call_id": ""}), "output[0].call_id:"),
        (response(output(value=3)), "output[0].output:"),
        (response(assistant("a", prompt_token_ids=[1])), "output[0].generation_token_ids:"),
    ],
)
def test_what_is_no_reply_is_refused_with_the_path(body: Any, path: str) -> None:
    with pytest.raises(InvalidReply) as caught:
        validate_response(body)

    assert str(caught.value).startswith(path)
