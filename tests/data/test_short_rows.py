import json
from typing import Any

import pytest

from gymq.data.jsonl import JsonlText
from gymq.data.materialise import Materialisation, MaterialiseOptions
from gymq.data.prompt import RowPrompt
from gymq.data.rows import RowError
from gymq.data.short_rows import whole_row

MESSAGES = [{"role": "user", "content": "Why?"}]


def made(row: dict[str, Any], **options: Any) -> dict[str, Any]:
    with Materialisation(MaterialiseOptions(agent_name="a", **options), "; name it") as rows:
        (only,) = rows.rows(JsonlText("in.jsonl", json.dumps(row).encode()))
    fields: dict[str, Any] = json.loads(only.json)
    return {name: value for name, value in fields.items() if not name.startswith("_ng_") and name != "agent_ref"}


@pytest.mark.parametrize("name", ["prompt", "question", "input", "messages"])
@pytest.mark.parametrize("asked", ["Why?", MESSAGES])
def test_the_prompt_is_a_field_of_the_row_and_stays_one(name: str, asked: Any) -> None:
    assert made({name: asked, "answer": 3}) == {
        "responses_create_params": {"input": asked},
        name: asked,
        "answer": 3,
    }


def test_of_several_fields_the_first_name_wins_and_the_others_stay() -> None:
    row = {"messages": MESSAGES, "input": "b", "question": "q", "prompt": "p"}
    asked = []
    while row:
        asked.append(made(row)["responses_create_params"]["input"])
        row.popitem()
    assert asked == ["p", "q", "b", MESSAGES]


def test_a_field_that_is_null_is_none() -> None:
    assert made({"prompt": None, "question": "q"})["responses_create_params"] == {"input": "q"}


def test_another_field_can_be_named() -> None:
    row = {"ask": "Why?", "prompt": "not this"}
    assert made(row, prompt_field="ask")["responses_create_params"] == {"input": "Why?"}


def test_a_whole_row_stays_as_it_is() -> None:
    row = {"responses_create_params": {"input": []}, "prompt": "p", "question": "q"}
    assert made(row) == row


def test_a_whole_row_may_have_its_solution_as_a_field_too() -> None:
    row = {"responses_create_params": {"input": "p"}, "simulated_solution": "a", "simulated_mistake": None}
    metadata = {"simulated_solution": '[[{"text":"a"}]]'}
    assert made(row) == {"responses_create_params": {"input": "p", "metadata": metadata}}


def test_parameters_without_an_input_are_kept_beside_the_prompt() -> None:
    params = {"temperature": 0.5, "metadata": {"user": "me"}}
    row = made({"prompt": "p", "responses_create_params": params, "simulated_solution": "a"})
    assert row["responses_create_params"] == {
        "temperature": 0.5,
        "metadata": {"user": "me", "simulated_solution": '[[{"text":"a"}]]'},
        "input": "p",
    }


def test_a_template_is_filled_from_the_fields_of_a_short_row() -> None:
    row = {"prompt": "p", "question": "q", "simulated_solution": "a"}
    params = made(row, prompt=RowPrompt(user="{question}!"))["responses_create_params"]
    assert params["input"] == [{"role": "user", "content": "q!"}]
    assert params["metadata"] == {"simulated_solution": '[[{"text":"a"}]]'}


CALL = {"call": {"name": "pay_in", "arguments": {"amount": 3}}}


@pytest.mark.parametrize(
    ("given", "script"),
    [
        ("Bern", [[{"text": "Bern"}]]),
        ([CALL, "Done."], [[CALL], [{"text": "Done."}]]),
        ([[CALL, CALL], [{"text": "Done."}]], [[CALL, CALL], [{"text": "Done."}]]),
    ],
)
def test_what_the_simulated_model_answers_is_a_field_of_the_row(given: Any, script: Any) -> None:
    row = made({"prompt": "p", "simulated_solution": given, "simulated_mistake": given})
    metadata = row.pop("responses_create_params")["metadata"]
    assert row == {"prompt": "p"}
    assert {name: json.loads(text) for name, text in metadata.items()} == {
        "simulated_solution": script,
        "simulated_mistake": script,
    }


@pytest.mark.parametrize(
    ("row", "options", "said"),
    [
        ({"ask": "a", "n": 1}, {}, "in.jsonl:1: the row has no prompt: its fields are ask, n; name it"),
        ({}, {}, "the row has no prompt: its fields are none; name it"),
        ({"a": 1}, {"prompt_field": "ask"}, "the row has no field 'ask': its fields are a; name it"),
        ({"prompt": 3}, {}, "`prompt` must be a text or a list of messages, not 3"),
        ({"prompt": ""}, {}, "`prompt` is empty, and should be what the model is asked"),
        ({"prompt": "p", "simulated_solution": 3}, {}, "`simulated_solution` must be a text or a list of turns, not 3"),
        (
            {"responses_create_params": {"input": "x"}, "ask": "a"},
            {"prompt_field": "ask"},
            "the row already has `responses_create_params.input`, so no prompt field can be used",
        ),
    ],
)
def test_a_row_without_a_usable_prompt_says_what_it_has(row: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(RowError) as caught:
        made(row, **options)
    assert str(caught.value).endswith(said)


def test_many_fields_are_not_all_listed() -> None:
    with pytest.raises(RowError, match=r"fields are f0, f1, .*, f11 and 88 more$"):
        whole_row(json.dumps({f"f{number}": 1 for number in range(100)}).encode())
