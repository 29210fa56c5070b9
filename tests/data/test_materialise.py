import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gymq.data.jsonl import JsonlText
from gymq.data.materialise import Materialisation, MaterialiseOptions
from gymq.data.prompt import RowPrompt
from gymq.data.rows import MaterialisedRow, RowError, read_rows

A = '{"responses_create_params": {"input": "a"}}\n'
B = '{"responses_create_params": {"input": "b"}}\n'


def materialised(text: str, **options: Any) -> list[MaterialisedRow]:
    with Materialisation(MaterialiseOptions(**{"agent_name": "ag", **options})) as materialisation:
        return list(materialisation.rows(JsonlText("in.jsonl", text.encode())))


def keys(rows: list[MaterialisedRow]) -> list[tuple[int, int]]:
    return [(row.task_index, row.rollout_index) for row in rows]


def row(**members: Any) -> str:
    return json.dumps({"responses_create_params": {"input": "a"}, **members}) + "\n"


def refusal(text: str, **options: Any) -> str:
    with pytest.raises(RowError) as caught:
        materialised(text, **options)
    return str(caught.value)


def test_rows_are_repeated_in_place() -> None:
    assert keys(materialised(A + B, num_repeats=2)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_identical_lines_are_one_task_that_keeps_counting() -> None:
    assert keys(materialised(A + B + A, num_repeats=2)) == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (A + B, []),
        (row(_ng_task_index=7) * 2, []),  # the rows themselves say that they are one task
        (A + B + A, ["line 1 and line 3 are equal: one task, 4 rollouts"]),
        (A + B + A + B + "\n" + A, ["line 1 and line 6 are equal: one task, 6 rollouts; so are 2 more"]),
    ],
)
def test_equal_lines_are_named_with_their_rollouts(text: str, said: list[str]) -> None:
    with Materialisation(MaterialiseOptions(agent_name="ag", num_repeats=2)) as materialisation:
        list(materialisation.rows(JsonlText("in.jsonl", text.encode()), lambda *_: None))
        assert list(materialisation.equal_rows(lambda number: f"line {number}")) == said


def test_a_last_line_without_line_end_is_another_text() -> None:
    assert keys(materialised(A + A.rstrip())) == [(0, 0), (1, 0)]


def test_blank_lines_cost_nothing_at_the_end_and_themselves_in_between() -> None:
    assert materialised(A + "\n  \n") == materialised(A)
    refused: list[int] = []
    with Materialisation(MaterialiseOptions(agent_name="ag")) as materialisation:
        rows = list(
            materialisation.rows(JsonlText("in.jsonl", f"{A}\n\n{A}\n".encode()), lambda n, _: refused.append(n))
        )
    assert ([row.line_number for row in rows], refused) == ([1, 4], [2, 3])


def test_line_ends_of_another_system_are_the_same_text() -> None:
    assert keys(materialised(A + A.replace("\n", "\r\n"))) == [(0, 0), (0, 1)]


def test_an_index_of_the_row_is_kept_and_does_not_take_part_in_the_numbering() -> None:
    rows = materialised(row(_ng_task_index=7) + A + row(_ng_task_index=0) + B)
    assert keys(rows) == [(7, 0), (0, 0), (0, 1), (1, 0)]


def test_a_rollout_index_of_the_row_is_overwritten() -> None:
    assert json.loads(materialised(row(_ng_rollout_index=9))[0].json)["_ng_rollout_index"] == 0


def test_what_an_earlier_run_added_to_a_failed_row_is_left_out() -> None:
    failed = {"_ng_failure_class": "judge_failed", "_ng_failure_terminal": False, "_ng_attempt_index": 2}
    (made,) = materialised(row(**failed, response={"output": []}, _ng_task_index=7))
    (fresh,) = materialised(A)
    assert json.loads(made.json).keys() == json.loads(fresh.json).keys() | {"response"}


def test_the_number_of_rollouts_of_a_task_is_known_after_the_pass() -> None:
    with Materialisation(MaterialiseOptions(agent_name="ag", num_repeats=2)) as materialisation:
        assert len(list(materialisation.rows(JsonlText("in.jsonl", (A + B + A).encode())))) == 6
        assert [materialisation.num_rollouts(task) for task in (0, 1, 2)] == [4, 2, 0]


def test_the_limit_counts_lines_before_repeats_and_lines_behind_it_are_not_read() -> None:
    assert keys(materialised(A + B + "garbage", limit=2, num_repeats=2)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len(materialised(A + B, limit=0)) == 2


def test_fields_keep_their_order_and_their_text() -> None:
    text = '{"b": 1.10, "responses_create_params": {"input": "ä", "x": 1e400}, "a": 123456789012345678901234567890}\n'
    assert materialised(text)[0].json.decode() == (
        '{"b":1.10,"responses_create_params":{"input": "ä", "x": 1e400},"a":123456789012345678901234567890,'
        '"agent_ref":{"name":"ag"},"_ng_task_index":0,"_ng_rollout_index":0}'
    )


def test_overrides_replace_whole_fields_and_keep_the_others() -> None:
    text = row(responses_create_params={"input": "a", "metadata": {"x": "1"}, "top_p": 0.5})
    rows = materialised(text, responses_create_params={"metadata": {"y": "2"}, "temperature": 0.9})
    assert json.loads(rows[0].json)["responses_create_params"] == {
        "input": "a",
        "metadata": {"y": "2"},
        "top_p": 0.5,
        "temperature": 0.9,
    }


def test_a_seed_is_merged_into_what_the_extra_body_holds() -> None:
    body = json.dumps({"seed": 5, "top_k": 3})
    rows = materialised(
        row(responses_create_params={"input": "a", "metadata": {"user": "me", "extra_body": body}}),
        num_repeats=2,
        num_repeats_add_seed=True,
    )
    assert [json.loads(r.json)["responses_create_params"]["metadata"] for r in rows] == [
        {"user": "me", "extra_body": '{"seed": 0, "top_k": 3}'},
        {"user": "me", "extra_body": '{"seed": 1, "top_k": 3}'},
    ]


@pytest.mark.parametrize("metadata", [None, {}, {"extra_body": None}])
def test_a_seed_needs_no_metadata_to_be_put_into(metadata: dict[str, Any] | None) -> None:
    text = row(responses_create_params={"input": "a", "metadata": metadata})
    [only] = materialised(text, num_repeats_add_seed=True)
    assert json.loads(only.json)["responses_create_params"]["metadata"] == {"extra_body": '{"seed": 0}'}


def test_repeats_that_are_none_are_one() -> None:
    assert keys(materialised(A, num_repeats=None)) == [(0, 0)]


def test_repeats_may_differ_between_agents() -> None:
    text = row(agent_ref={"name": "x"}) + row(agent_ref={"name": "y"}) + row(agent_ref={"name": "z"})
    rows = materialised(text, num_repeats={"x": 3, "y": 1, "_default": 2})
    assert Counter(r.agent for r in rows) == {"x": 3, "y": 1, "z": 2}


def test_repeats_for_agents_that_no_row_has_are_one_warning() -> None:
    options = MaterialiseOptions(agent_name="ag", num_repeats={"ag": 1, "typo": 2, "other": 2, "_default": 1})
    with Materialisation(options) as materialisation:
        list(materialisation.rows(JsonlText("in.jsonl", A.encode())))
    assert materialisation.warnings == ["num_repeats names agents that no row has: other, typo"]


def test_a_prompt_makes_the_input_and_leaves_the_other_parameters() -> None:
    text = '{"q": "why?", "responses_create_params": {"input": [], "temperature": 1.0}}\n{"q": "how?"}\n'
    rows = materialised(text, prompt=RowPrompt(user="{q}"))
    assert [json.loads(r.json)["responses_create_params"] for r in rows] == [
        {"input": [{"role": "user", "content": "why?"}], "temperature": 1.0},
        {"input": [{"role": "user", "content": "how?"}]},
    ]


@pytest.mark.parametrize(
    ("text", "options", "reasons"),
    [
        ("\n", {}, ["in.jsonl:1", "blank"]),
        (A + "{broken\n", {}, ["in.jsonl:2", "not valid JSON"]),
        ("[]\n", {}, ["in.jsonl:1", "not an object"]),
        ('{"a": 1, "b": 2}\n', {}, ["in.jsonl:1: the row has no prompt: its fields are a, b"]),
        ('{"responses_create_params": null}\n', {}, ["`responses_create_params` must be an object, not null"]),
        ('{"responses_create_params": []}\n', {}, ["`responses_create_params` must be an object"]),
        (A, {"agent_name": None}, ["in.jsonl:1", "agent_ref", "agent_name"]),
        (row(agent_ref=None), {}, ["`agent_ref` must be an object", "not null"]),
        (row(agent_ref={"name": ""}), {}, ["`agent_ref` must be an object"]),
        (row(agent_ref="ag"), {}, ["`agent_ref` must be an object"]),
        (row(_ng_task_index=-1), {}, ["`_ng_task_index`"]),
        (row(_ng_task_index="3"), {}, ["`_ng_task_index`"]),
        (row(_ng_task_index=None), {}, ["`_ng_task_index`"]),
        (row(_ng_task_index=True), {}, ["`_ng_task_index`"]),
        (row(_ng_task_index=2**60), {}, ["`_ng_task_index`"]),
        (A, {"num_repeats": {"other": 2}}, ["in.jsonl:1", "num_repeats", "'ag'", "_default"]),
        (A, {"prompt": RowPrompt(user="x")}, ["responses_create_params.input", "prompt template"]),
        ('{"a": 1}\n', {"prompt": RowPrompt(user="{q}")}, ["in.jsonl:1", "'q'"]),
        (
            row(responses_create_params={"metadata": {"extra_body": "no json"}}),
            {"num_repeats_add_seed": True},
            ["`responses_create_params.metadata.extra_body`"],
        ),
        (
            row(responses_create_params={"metadata": {"extra_body": "[1]"}}),
            {"num_repeats_add_seed": True},
            ["`responses_create_params.metadata.extra_body` must contain a JSON object"],
        ),
        (
            row(responses_create_params={"metadata": "x"}),
            {"num_repeats_add_seed": True},
            ["`responses_create_params.metadata` must be an object"],
        ),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_with_its_place(
    text: str, options: dict[str, Any], reasons: list[str]
) -> None:
    message = refusal(text, **options)
    assert [reason for reason in reasons if reason not in message] == []


def test_of_a_long_value_a_message_has_the_beginning() -> None:
    with pytest.raises(RowError, match=r'not "x{59}\.\.\.$'):
        materialised(row(agent_ref="x" * 1000))


def test_each_kind_of_unusable_row_is_reported_once_with_exact_counts() -> None:
    message = refusal('{"a": 1}\n' + A + 'x\n{"a": 2}\n' * 500)
    assert message.splitlines() == [
        "1,001 of 1,002 rows cannot be used:",
        "in.jsonl:1, 4, 6 and 498 more: the row has no prompt: its fields are a",
        "in.jsonl:3, 5, 7 and 497 more: the line is not valid JSON: JSON is malformed: invalid character (byte 0)",
    ]


def test_a_row_is_rolled_out_at_least_once() -> None:
    with pytest.raises(ValidationError, match="must be at least 1"):
        MaterialiseOptions(num_repeats=0)
    with pytest.raises(ValidationError, match="x: must be at least 1, not -1"):
        MaterialiseOptions(num_repeats={"x": -1})


@pytest.mark.parametrize("options", [{"num_repeats": 2**60}, {"num_repeats": {"x": 10**30}}, {"limit": 10**30}])
def test_numbers_that_nothing_could_count_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=str(2**53)):
        MaterialiseOptions(**options)


def test_what_was_materialised_can_be_read_back() -> None:
    rows = materialised(A + B + A, num_repeats=2)
    text = b"".join(r.json + b"\n" for r in rows)
    again = list(read_rows(JsonlText("m.jsonl", text)))
    assert [(r.task_index, r.rollout_index, r.agent, r.json) for r in again] == [
        (r.task_index, r.rollout_index, r.agent, r.json) for r in rows
    ]


def test_a_row_without_indices_is_no_materialised_row() -> None:
    with pytest.raises(RowError, match=r"m\.jsonl:1: .*_ng_task_index"):
        list(read_rows(JsonlText("m.jsonl", A.encode())))


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 6))), max_size=12), st.integers(1, 3))
def test_no_two_rows_of_a_run_have_the_same_key(lines: list[tuple[int, int | None]], repeats: int) -> None:
    text = "".join(row(n=number, **({} if index is None else {"_ng_task_index": index})) for number, index in lines)
    rows = materialised(text, num_repeats=repeats)
    assert len(set(keys(rows))) == len(rows) == len(lines) * repeats
    per_task = Counter(r.task_index for r in rows)
    assert sorted(keys(rows)) == sorted((task, k) for task, count in per_task.items() for k in range(count))
