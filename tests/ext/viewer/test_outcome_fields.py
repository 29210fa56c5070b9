"""What a reader of an outcome looks for, found in rows and verdicts whatever their authors call it."""

from typing import Any

import msgspec
import pytest

from gymq.ext.rollout_files.shown import (
    answer_of,
    exact_record,
    fields_beside_prompt,
    judge_calls,
    num_turns,
    question_of,
    shown_calls,
)
from gymq.runs.outcome_fields import expected_of, params_of
from gymq.testing import reply

from .conftest import failure, rollout

CALL = {"request": {"input": "same?"}, "response": {"output": [{"type": "message"}]}, "verdict_label": "[[A=B]]"}


@pytest.mark.parametrize(
    ("row", "verdict", "expected"),
    [
        ({"expected_answer": "4", "id": 3}, {}, {"expected_answer": "4"}),
        ({"answer": "Bern"}, {"answer": "other"}, {"answer": "Bern"}),
        ({"ground_truth": [1]}, {}, {"ground_truth": [1]}),
        ({"verifier_metadata": {"expected_result": 2, "seed": 1}}, {}, {"expected_result": 2}),
        ({}, {"expected_answer": "C", "extracted_answer": "D"}, {"expected_answer": "C"}),
        ({"answer": False}, {}, {"answer": False}),
        ({"correct": True, "target": None, "targeted": 1}, {}, {}),
    ],
)
def test_what_was_expected_is_found_by_the_usual_names(row: Any, verdict: Any, expected: Any) -> None:
    assert expected_of(row, verdict) == expected


def test_the_most_usual_name_comes_first() -> None:
    row = {"reference_solution": "so", "solution": "2 + 2 = 4", "metadata": {"expected_answer": "4"}}
    assert list(expected_of(row, {})) == ["expected_answer", "solution", "reference_solution"]


def test_the_answer_is_what_the_verifier_read_or_else_the_last_reply() -> None:
    assert answer_of(rollout("r", 0, verdict={"accuracy": 1, "extracted_answer": "B"})) == ("extracted_answer", "B")
    assert answer_of(rollout("r", 0, text="It is B", verdict={"extracted_answer": None})) == ("", "It is B")
    assert answer_of(failure("r", 0)) == ("", "")


def test_the_calls_of_judges_are_found_wherever_a_verdict_has_them() -> None:
    verdict = {"judge_evaluations": [CALL, {"no": "call"}], "findings": {"second": CALL}, "accuracy": 1}
    found = {call.path: call for call in judge_calls("", verdict)}
    assert list(found) == ["judge_evaluations[0]", "findings.second"]
    call = found["judge_evaluations[0]"]
    assert (call.facts, call.prompt) == ({"verdict_label": "[[A=B]]"}, [{"role": "user", "content": "same?"}])
    assert call.output == [{"type": "message"}]


def test_a_program_with_prompts_of_its_own_says_what_it_asked() -> None:
    row = {"responses_create_params": {"input": "of the row"}}
    verdict = {"responses_create_params": {"input": [{"role": "user", "content": "of the program"}]}}
    assert question_of(params_of(row, {})) == "of the row"
    assert question_of(params_of(row, verdict)) == "of the program"


def test_the_exact_record_has_the_row_as_an_object() -> None:
    record = msgspec.json.decode(exact_record(rollout("r", 2, response=reply("x"), reward=0.5)))
    assert (record["type"], record["row"]["answer"], record["reward"]) == ("rollout.v1", "Bern", 0.5)
    broken = failure("r", 0)
    broken.row = b"\xff"
    assert msgspec.json.decode(exact_record(broken))["row"] == "\\xff"
    broken.row = b"[" * 20_000 + b"]" * 20_000
    assert msgspec.json.decode(exact_record(broken))["row"] == broken.row.decode()


def test_what_any_tool_answers_ends_a_turn() -> None:
    call, output = {"type": "custom_tool_call", "input": "a"}, {"type": "custom_tool_call_output", "output": "b"}
    assert num_turns({"output": [call, output, call, call, output, *reply("done")["output"]]}) == 3


def test_the_field_with_the_prompt_is_no_other_field_of_the_row() -> None:
    fields = {"messages": [{"role": "user", "content": "x"}], "input": "y"}
    assert fields_beside_prompt(fields, {"input": fields["messages"]}) == {"input": "y"}


def test_recorded_calls_stand_for_those_that_the_verifier_stores():
    call = {"request": {"input": "same?"}, "response": {"output": []}}
    stored = {"judge_evaluations": [call], "accuracy": 1}
    assert {name: len(calls) for name, calls in shown_calls(stored).items()} == {"judge_evaluations": 1}
    recorded = stored | {"judge_calls": [call | {"label": "[[A]]"}, call]}
    assert {name: len(calls) for name, calls in shown_calls(recorded).items()} == {
        "judge_evaluations": 0,
        "judge_calls": 2,
    }
