"""The forms of token ids in files: what is written as a chain is read as it was."""

from array import array
from typing import Any

import msgspec
import pytest

from gymq.protocol.token_forms import in_form, with_whole_prompts
from gymq.protocol.tokens import CallTokens, ContinuedPrompt, encode_json

FIRST = CallTokens(array("i", [1, 2]), array("i", [3]))
PROMPTS = [[1, 2], [1, 2, 3, 4]]


def item(prompt: Any, generation: list[int]) -> dict[str, Any]:
    log_probs = array("f", [-0.5] * len(generation))
    return {
        "type": "message",
        "prompt_token_ids": prompt,
        "generation_token_ids": array("i", generation),
        "generation_log_probs": log_probs,
    }


def response() -> dict[str, Any]:
    second = ContinuedPrompt(3, array("i", [4]), FIRST)
    output = [item(FIRST.prompt, [3]), {"type": "function_call_output", "output": "x"}, item(second, [5, 6])]
    return {"id": "r", "output": output}


def through_json(value: dict[str, Any]) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value, enc_hook=encode_json))
    return decoded


def prompts(of: dict[str, Any]) -> list[list[int]]:
    return [list(one["prompt_token_ids"]) for one in of["output"] if "prompt_token_ids" in one]


def test_the_full_form_has_whole_prompts() -> None:
    assert prompts(through_json(in_form(response(), "full"))) == PROMPTS


def test_the_chain_has_what_is_new_in_each_prompt_and_is_read_whole() -> None:
    line = through_json(in_form(response(), "chain"))
    assert prompts(line) == PROMPTS[:1]
    assert line["output"][2] == {
        "type": "message",
        "generation_token_ids": [5, 6],
        "generation_log_probs": [-0.5, -0.5],
        "prompt_prefix_length": 3,
        "prompt_suffix_token_ids": [4],
    }
    assert through_json(with_whole_prompts(line)) == through_json(response())


def test_without_token_ids_there_are_none() -> None:
    line = through_json(in_form(response(), "none"))
    assert line["output"] == [{"type": "message"}, {"type": "function_call_output", "output": "x"}, {"type": "message"}]


def test_states_of_an_environment_are_chains_of_their_own() -> None:
    states = {"output": [response()["output"][:1], response()["output"]]}
    line = through_json(in_form(states, "chain"))
    assert "prompt_token_ids" not in line["output"][1][2]
    assert through_json(with_whole_prompts(line)) == through_json(states)


def test_what_has_no_continued_prompt_is_unchanged() -> None:
    single = {"output": [item([1, 2], [3]), "no item"]}
    assert in_form(single, "chain") is single
    assert with_whole_prompts(single) is single
    assert with_whole_prompts({"output": None}) == {"output": None}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt_prefix_length": 4}, r"output\[2\].prompt_token_ids: continues 4 tokens, but there are 3 before"),
        ({"prompt_prefix_length": -1}, r"output\[2\].prompt_token_ids: continues -1 tokens, but there are 3 before"),
        ({"prompt_prefix_length": "3"}, "prompt_prefix_length is '3', not the number of tokens before"),
        ({"prompt_prefix_length": True}, "prompt_prefix_length is True"),
        ({"prompt_suffix_token_ids": "4"}, "prompt_suffix_token_ids is not a list of token ids"),
        ({"prompt_suffix_token_ids": [2**40]}, "prompt_suffix_token_ids is not a list of token ids"),
        ({"prompt_suffix_token_ids": None}, "prompt_suffix_token_ids is not a list of token ids"),
    ],
)
def test_fields_that_do_not_fit_are_named(fields: dict[str, Any], message: str) -> None:
    line = through_json(in_form(response(), "chain"))
    line["output"][2] |= fields
    with pytest.raises(ValueError, match=message):
        with_whole_prompts(line)


def test_a_line_that_begins_in_the_middle_is_refused() -> None:
    line = through_json(in_form(response(), "chain"))
    with pytest.raises(ValueError, match="continues a call that is not there"):
        with_whole_prompts({"output": line["output"][1:]})


def test_a_short_line_names_no_number_of_tokens_that_fills_the_memory() -> None:
    call = {"type": "message", "generation_token_ids": [1], "generation_log_probs": [0.0]}
    first = {**call, "prompt_token_ids": [1] * 1_000_000}
    calls = [
        {**call, "prompt_prefix_length": 1_000_000 + number, "prompt_suffix_token_ids": []} for number in range(1, 400)
    ]
    with_whole_prompts({"output": [first, *calls[:200]]})
    with pytest.raises(ValueError, match=r"its prompts have 399,079,800 tokens together"):
        with_whole_prompts({"output": [first, *calls]})
