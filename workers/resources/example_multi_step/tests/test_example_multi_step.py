"""What the recorded cases cannot say: whatever a model may write as arguments, there is a verdict."""

import json
from typing import Any

import pytest
from gymq.workers.resources.example_multi_step.worker import Synonyms

import gymq
from gymq.protocol.codec import encode
from gymq.protocol.messages import Verified
from gymq.testing import Harness, function_call, prompt, reply

ROW = {
    **prompt("It is warm today"),
    "id": 1,
    "expected_synonym_values": [644, 501],
    "expected_synonyms": ["Toasty", "Balmy"],
    "minefield_label": "Warm",
    "minefield_label_value": 407,
}


async def verdict_on(arguments: Any, **members: Any) -> gymq.Verdict:
    async with Harness(Synonyms) as env:
        return await env.verify(ROW | members, reply(function_call("extract_synonym_values", arguments), "Done."))


@pytest.mark.parametrize(
    "arguments",
    [
        "{oops",
        "",
        "[644, 501]",
        "null",
        "{}",
        '{"synonym_values": null}',
        '{"synonym_values": 644}',
        '{"synonym_values": [[644], [501]]}',
        '{"synonym_values": [null]}',
        '{"synonym_values": [NaN]}',
        '{"synonym_values": [1e999]}',
        '{"synonym_values": ["\\ud800"]}',
        f'{{"synonym_values": [{10**30}]}}',
        '{"synonym_values": ' + "[" * 100_000,
    ],
)
async def test_arguments_that_cannot_be_read_score_0(arguments):
    verdict = await verdict_on(arguments)
    assert verdict.reward == 0.0
    assert verdict.fields["parsed_synonym_values"] == []
    encode(Verified(reward=verdict.reward, verdict=verdict.fields))


async def test_arguments_that_cannot_be_read_score_0_when_nothing_was_expected():
    assert (await verdict_on("{oops", expected_synonym_values=[])).reward == 0.0


async def test_a_call_without_arguments_scores_0():
    item = function_call("extract_synonym_values", "")
    del item["arguments"]
    async with Harness(Synonyms) as env:
        assert (await env.verify(ROW, reply(item))).reward == 0.0


@pytest.mark.parametrize(
    ("values", "reported"),
    [
        ([True, 501.0, "7"], "[1, 501, 7]"),
        ([1.5, True], "[1.5, true]"),
        (["Warm", 501.0], '["Warm", 501.0]'),
        ([str(10**30)], f'["{10**30}"]'),
        ([1e300], "[1e+300]"),
    ],
)
async def test_values_are_reported_as_integers_where_all_stand_for_one(values, reported):
    verdict = await verdict_on({"synonym_values": values})
    assert json.dumps(verdict.fields["parsed_synonym_values"]) == reported
    encode(Verified(reward=verdict.reward, verdict=verdict.fields))


@pytest.mark.parametrize(
    ("values", "reward", "overlap"),
    [
        ([644.0, 501], 1.0, 1.0),
        (["644", "501"], 0.0, 0.0),
        ([644, 501, 501], 0.0, 1.0),
        ([True, 501], 0.0, 0.5),
        ([], 0.0, 0.0),
    ],
)
async def test_values_are_compared_as_numbers(values, reward, overlap):
    verdict = await verdict_on({"synonym_values": values})
    assert verdict.reward == reward
    assert verdict.fields["set_overlap"] == overlap


@pytest.mark.parametrize(("values", "hit"), [(["Warm"], True), ([407], True), ([407.0], True), ([406], False)])
async def test_the_term_itself_and_its_value_are_a_mine(values, hit):
    assert (await verdict_on({"synonym_values": values})).fields["original_term_minefield_hit"] is hit


@pytest.mark.parametrize(("values", "reward", "overlap"), [([], 1.0, 1.0), ([1], 0.0, 0.0)])
async def test_nothing_may_be_expected(values, reward, overlap):
    verdict = await verdict_on({"synonym_values": values}, expected_synonym_values=[])
    assert (verdict.reward, verdict.fields["set_overlap"]) == (reward, overlap)


@pytest.mark.parametrize("values", ["12", [1.5], ["a"], None, 3])
async def test_the_tool_refuses_what_are_no_integers(values):
    async with Harness(Synonyms) as env:
        session = await env.session(ROW)
        assert (await session.call("extract_synonym_values", {"synonym_values": values})).status == 422


async def test_the_value_of_a_synonym_is_the_sum_of_its_code_points():
    async with Harness(Synonyms) as env:
        result = await (await env.session(ROW)).call("get_synonym_value", {"synonym": "é😀"})
    assert json.loads(result.output) == {"synonym_value": 0xE9 + 0x1F600}
