"""What the recorded cases cannot say: whatever a model may write as arguments there is a verdict; prepared rows fit."""

import json
import sys
from typing import Any

import pytest
from gymq.workers.resources.xlam_fc import prepare
from gymq.workers.resources.xlam_fc.worker import FunctionCalling, agree_as_published, agree_by_type

import gymq
from gymq.protocol.codec import encode
from gymq.protocol.messages import Verified
from gymq.testing import Harness, function_call, prompt, reply

TIDE = {"name": "tide", "arguments": {"port": "Cork"}}


async def verdict_on(*arguments: Any, expected: Any = (TIDE,)) -> gymq.Verdict:
    row = {**prompt("When is high tide?"), "expected_answers": expected}
    async with Harness(FunctionCalling) as env:
        verdict = await env.verify(row, reply(*(function_call("tide", text) for text in arguments)))
    encode(Verified(reward=verdict.reward, verdict=verdict.fields))
    return verdict


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", {}),
        ("{oops", {}),
        ("[" * 100_000, {}),
        ('{"port": ' + "9" * 5_000 + "}", {}),
        ("null", None),
        ("[1]", [1]),
        ('"Cork"', "Cork"),
        ('"[1]"', "[1]"),
        ('{"port": "Cobh"}', {"port": "Cobh"}),
        (f'{{"port": {10**30}}}', f'{{"port": {10**30}}}'),
        ('{"port": "\\ud800"}', '{"port": "\\ud800"}'),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_arguments_that_do_not_fit_score_0_and_are_reported(text, reported):
    verdict = await verdict_on(text)
    assert (verdict.reward, verdict.fields["num_correct"]) == (0.0, 0)
    assert verdict.fields["predicted_calls"] == [{"name": "tide", "arguments": reported}]


async def test_a_call_without_arguments_has_none():
    item = function_call("tide", "")
    del item["arguments"]
    row = {**prompt("When is high tide?"), "expected_answers": [{"name": "tide"}]}
    async with Harness(FunctionCalling) as env:
        verdict = await env.verify(row, reply(item))
    assert (verdict.reward, verdict.fields["predicted_calls"]) == (1.0, [{"name": "tide", "arguments": {}}])


async def test_json_inside_a_json_text_is_read():
    verdict = await verdict_on(json.dumps(json.dumps({"port": "Cork"})))
    assert verdict.reward == 1.0
    assert verdict.fields["predicted_calls"] == [{"name": "tide", "arguments": '{"port": "Cork"}'}]


@pytest.mark.parametrize("arguments", ['{"port": "Cork"}', {"port": "Cork"}, {}, "", "{oops", "[1]", 7, None])
async def test_expected_arguments_may_be_text_and_count_as_none_if_they_are_no_object(arguments):
    verdict = await verdict_on({"port": "Cork"}, expected=[{"name": "tide", "arguments": arguments}])
    assert verdict.reward == 1.0


@pytest.mark.parametrize("answer", [{}, {"name": None}, {"name": "Tide"}, {"arguments": {"port": "Cork"}}])
async def test_an_expected_call_without_the_right_name_is_never_made(answer):
    assert (await verdict_on({"port": "Cork"}, expected=[answer])).reward == 0.0


@pytest.mark.parametrize(
    ("expected", "given", "equal"),
    [
        (1, 1.0, True),
        (1, True, True),
        (1, "1", False),
        (None, None, True),
        (0.1, 0.1000001, False),
        ([1, 2], [2, 1], False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ("é", "e\u0301", False),
        ("Cork", "cork", False),
    ],
)
def test_values_are_equal_as_json_in_python(expected, given, equal):
    assert agree_as_published({"value": expected}, {"value": given}, None) is equal


@pytest.mark.parametrize("place", [lambda value: value, lambda value: [0, value], lambda value: {"a": {"b": [value]}}])
@pytest.mark.parametrize(
    ("expected", "given", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (False, 0.0, False),
        (True, True, True),
        (True, "true", False),
        (None, False, False),
        ([True], [1], False),
        ({"a": 1}, {"a": True}, False),
        ([1, [2]], [1, [2]], True),
    ],
)
def test_true_and_false_are_no_numbers(place, expected, given, equal):
    assert agree_by_type({"value": place(expected)}, {"value": place(given)}, None) is equal
    assert agree_by_type({"value": place(given)}, {"value": place(expected)}, None) is equal


@pytest.mark.parametrize(
    ("parameters", "reward"),
    [
        ({"type": "object", "properties": {"port": {}}}, 0.0),
        ({"type": "object", "properties": {"port": {}}, "additionalProperties": False}, 0.0),
        ({"type": "object", "properties": {"port": {}, "days": {}}}, 1.0),
        ({"type": "object", "properties": {"port": {}}, "additionalProperties": {"type": "integer"}}, 1.0),
        ({"type": "object"}, 1.0),
        (None, 1.0),
    ],
)
async def test_an_argument_that_the_function_does_not_have_is_wrong(parameters, reward):
    row = {**prompt("When is high tide?"), "expected_answers": [TIDE]}
    row["responses_create_params"]["tools"] = [
        {"type": "function", "name": "tide", "parameters": parameters, "strict": False}
    ]
    answer = reply(function_call("tide", {"port": "Cork", "days": 2}))
    async with Harness(FunctionCalling) as env:
        assert (await env.verify(row, answer)).reward == reward
    async with Harness(FunctionCalling, {"hardened": False}) as env:
        assert (await env.verify(row, answer)).reward == 1.0


async def test_a_call_with_further_arguments_is_left_to_the_answer_that_expects_them():
    row = prompt("When is high tide?")
    short, long = {"port": "Cork"}, {"port": "Cork", "days": 2}
    row["expected_answers"] = [{"name": "tide", "arguments": short}, {"name": "tide", "arguments": long}]
    answer = reply(function_call("tide", long), function_call("tide", short))
    async with Harness(FunctionCalling) as env:
        assert (await env.verify(row, answer)).reward == 1.0
    async with Harness(FunctionCalling, {"hardened": False}) as env:
        assert (await env.verify(row, answer)).reward == 0.0


def test_a_null_agrees_only_with_a_null_that_was_given():
    assert not agree_by_type({"value": None}, {}, None)


def test_values_too_deep_to_compare_do_not_agree():
    first: Any = []
    second: Any = []
    for _ in range(50_000):
        first, second = [first], [second]
    assert agree_by_type({"value": first}, {"value": second}, None) is False
    assert agree_as_published({"value": first}, {"value": second}, None) is False


async def test_each_call_matches_one_expected_call():
    verdict = await verdict_on({"port": "Cork"}, {"port": "Cobh"}, expected=[TIDE, TIDE])
    assert (verdict.reward, verdict.fields["num_correct"]) == (0.0, 1)


@pytest.mark.parametrize("answers", [{"name": "tide"}, ["tide"], None, "[]"])
async def test_answers_that_are_no_list_of_objects_are_refused(answers):
    with pytest.raises(gymq.InvalidTask, match="expected_answers"):
        await verdict_on({"port": "Cork"}, expected=answers)


@pytest.mark.parametrize(
    ("python_type", "schema"),
    [
        ("str", {"type": "string"}),
        ("int, optional", {"type": "integer"}),
        ("List[int], optional", {"type": "array", "items": {"type": "integer"}}),
        ("List[List[float]]", {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}),
        ("Tuple[float, float]", {"type": "array", "items": {"type": "number"}}),
        ("Optional[bool]", {"type": "boolean"}),
        ("Dict[str, int]", {"type": "object"}),
        ("list", {"type": "array", "items": {}}),
        ("Union[int, str]", {}),
        ("Callable[[float], float]", {}),
        ("", {}),
    ],
)
def test_types_of_the_data_set_become_json_schemas(python_type, schema):
    assert prepare.json_schema(python_type) == schema


def entry(number: int, **members: Any) -> dict[str, Any]:
    parameters = {
        "port": {"description": "a port", "type": "str", "default": "Cork"},
        "days": {"description": "how long", "type": "int, optional", "default": 1},
    }
    tools = [{"name": "tide", "description": "Tide times", "parameters": parameters, "strict": False}]
    return {"id": number, "query": "Tide?", "tools": json.dumps(tools), "answers": json.dumps([TIDE]), **members}


def test_only_optional_parameters_may_be_left_out_and_have_a_default():
    row = prepare.make_row(entry(1))
    assert row is not None
    parameters = row["responses_create_params"]["tools"][0]["parameters"]
    assert parameters["required"] == ["port"]
    assert parameters["properties"]["days"] == {"type": "integer", "description": "how long", "default": 1}
    assert "default" not in parameters["properties"]["port"]


@pytest.mark.parametrize("members", [{"tools": "[]"}, {"answers": "[]"}])
def test_entries_without_tools_or_answers_are_skipped(members):
    assert prepare.make_row(entry(1, **members)) is None


async def test_prepared_rows_fit_and_1000_of_them_are_held_out(tmp_path, monkeypatch):
    source = tmp_path / "source.json"
    source.write_text(json.dumps([entry(number) for number in range(1005)]))
    train, validation = tmp_path / "train.jsonl", tmp_path / "validation.jsonl"
    program = ["prepare", str(source), "--train", str(train), "--validation", str(validation)]
    monkeypatch.setattr(sys, "argv", program)
    prepare.main()
    rows = [json.loads(line) for file in (train, validation) for line in file.read_text().splitlines()]
    assert len(train.read_text().splitlines()) == 5
    assert sorted(row["id"] for row in rows) == list(range(1005))
    async with Harness(FunctionCalling) as env:
        assert (await env.verify(rows[0], reply(function_call("tide", {"port": "Cork"})))).reward == 1.0
