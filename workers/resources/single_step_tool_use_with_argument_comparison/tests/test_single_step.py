"""What the recorded cases cannot say: matching against brute force, hostile arguments, options that do not fit."""

import itertools
import json
import random
from typing import Any

import pytest
from gymq.workers.resources.single_step_tool_use_with_argument_comparison.arguments import (
    Tolerance,
    first_difference,
    similar_in_telling_words,
)
from gymq.workers.resources.single_step_tool_use_with_argument_comparison.calls import maximum_matching
from gymq.workers.resources.single_step_tool_use_with_argument_comparison.worker import SingleStep

import gymq
from gymq.testing import Harness, function_call, prompt, reply

TOLERANCE = Tolerance(0.1, 1e-6, similar_in_telling_words)


def call(name: str, arguments: Any = None) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments)}


def batch(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function_call_batch", "calls": list(calls)}


async def verdict_on(expected: Any, *output: Any, hardened: bool = True, **options: Any) -> tuple[float, str]:
    config: dict[str, Any] = {"hardened": hardened}
    if options:
        config["tool_call_comparator_config"] = options
    async with Harness(SingleStep, config) as env:
        verdict = await env.verify({**prompt("Go on."), "expected_action": expected}, reply(*output))
    return verdict.reward, verdict.fields["category"]


def made(*calls: dict[str, Any]) -> list[gymq.FunctionCall]:
    return [function_call(one["name"], one["arguments"]) for one in calls]


def test_a_matching_is_as_large_as_any_other():
    rng = random.Random(5)
    for _ in range(300):
        members, others = rng.randint(0, 5), rng.randint(0, 5)
        candidates = [[other for other in range(others) if rng.random() < 0.4] for _ in range(members)]
        found = maximum_matching(candidates)
        assert all(partner in candidates[member] for member, partner in found.items())
        assert len(set(found.values())) == len(found)
        choices = itertools.product(*([None, *row] for row in candidates))
        chosen = ([partner for partner in choice if partner is not None] for choice in choices)
        assert len(found) == max(len(choice) for choice in chosen if len(set(choice)) == len(choice))


def test_long_chains_of_changes_are_no_recursion():
    # The last one takes the candidate of the one before it, who takes that of the one before, and so on.
    length = 5_000
    candidates = [[index, index + 1] for index in range(length)] + [[0, 1]]
    assert len(maximum_matching(candidates)) == length + 1


async def test_matching_is_not_greedy():
    loose, strict = call("note", {"text": "red green blue"}), call("note", {"text": "red red red"})
    first, second = call("note", {"text": "red red blue"}), call("note", {"text": "green blue blue"})
    assert await verdict_on(batch(loose, strict), *made(first, second)) == (1.0, "expected_tool_call_batch")


@pytest.mark.parametrize(
    "arguments", ["", "{oops", "[" * 100_000, '{"port": ' + "9" * 5_000 + "}"], ids=lambda text: text[:10]
)
async def test_arguments_that_are_no_json_are_an_error_of_the_model(arguments):
    outcome = await verdict_on(call("tide", {"port": "Cork"}), function_call("tide", arguments))
    assert outcome == (0.0, "arguments_decode_error")


async def test_a_call_without_arguments_is_an_error_of_the_model():
    item = function_call("tide", "")
    del item["arguments"]
    assert await verdict_on(call("tide", {}), item) == (0.0, "arguments_decode_error")


@pytest.mark.parametrize(
    "expected",
    [
        None,
        {},
        {"type": "function"},
        {"type": "message"},
        {"type": "message", "content": 5},
        {"type": "function_call", "name": "tide"},
        {"type": "function_call", "name": "tide", "arguments": {}},
        {"type": "function_call", "name": "tide", "arguments": "{oops"},
        {"type": "function_call", "name": "tide", "arguments": "[" * 100_000},
        {"type": "function_call_batch", "calls": []},
        {"type": "function_call_batch", "calls": [{"type": "message", "content": "x"}]},
        {"type": "function_call_batch", "calls": [{"type": "function_call", "name": "tide", "arguments": "x"}]},
    ],
    ids=lambda value: str(value)[:60],
)
async def test_an_expected_action_that_does_not_fit_is_refused(expected):
    with pytest.raises(gymq.InvalidTask, match="expected_action"):
        await verdict_on(expected, "Hello.")


@pytest.mark.parametrize(
    ("expected", "actual", "category"),
    [
        (1, 1, None),
        (1, True, None),
        (1, 1.0, "argument_value_type_different"),
        (1.0, 1, "argument_value_type_different"),
        (True, 1, "argument_value_type_different"),
        (None, None, None),
        (None, 0, "argument_value_type_different"),
        (0.5, 0.5000001, None),
        (0.5, 0.6, "argument_value_different"),
        (float("nan"), float("nan"), "argument_value_different"),
        (float("inf"), float("inf"), "argument_value_different"),
        ("Cork", "cork", "argument_value_different"),
        ("Cork ", "Cork", "argument_value_different"),
        ("", "", None),
        ("one two", "one", "argument_value_different"),
        ("one two", "TWO three", None),
        ("one two", "three four", "argument_value_different"),
        ({"a": 1}, {"a": 1, "b": 2}, "argument_object_keys_different"),
        ([1], [1, 2], "argument_list_length_different"),
        ({"a": 1, "b": [1]}, {"b": [], "a": 2}, "argument_value_different"),
        ({"a": [1, "x"], "b": 2}, {"a": [1, 2], "b": 3}, "argument_value_type_different"),
    ],
)
def test_the_first_difference_decides(expected, actual, category):
    assert first_difference(expected, actual, TOLERANCE) == category


def test_deeply_nested_arguments_are_compared_without_recursion():
    first: Any = 1
    second: Any = 2
    for _ in range(50_000):
        first, second = [first], [second]
    assert first_difference(first, second, TOLERANCE) == "argument_value_different"


@pytest.mark.parametrize(("threshold", "similar"), [(0.0, True), (0.5, True), (0.51, False)])
def test_the_same_words_reach_one_half(threshold, similar):
    difference = first_difference("one two", "Two  ONE", Tolerance(threshold, 1e-6, similar_in_telling_words))
    assert difference == (None if similar else "argument_value_different")


def test_the_threshold_0_lets_other_words_pass():
    assert first_difference("one two", "three four", Tolerance(0.0, 1e-6, similar_in_telling_words)) is None


ONE, TWO, THREE = call("one"), call("two"), call("three")


@pytest.mark.parametrize(
    ("options", "calls", "outcome"),
    [
        ({}, [TWO, ONE], (1.0, "expected_tool_call_batch")),
        ({}, [TWO, ONE, THREE], (0.0, "function_call_batch_length_different")),
        ({}, [ONE], (0.0, "function_call_batch_length_different")),
        ({}, [ONE, THREE], (0.0, "unexpected_tool")),
        ({}, [ONE, call("two", 5)], (0.0, "argument_value_type_different")),
        ({"parallel_tool_call_rewarding": True}, [ONE, TWO], (1.0, "expected_tool_call_batch")),
        ({"parallel_tool_call_rewarding": True}, [ONE], (0.0, "function_call_batch_length_different")),
        ({"parallel_tool_call_rewarding": True}, [ONE, TWO, ONE], (0.0, "function_call_batch_length_different")),
        ({"parallel_tool_call_rewarding": True, "allow_subset": True}, [ONE], (1.0, "expected_tool_call_batch")),
        (
            {"parallel_tool_call_rewarding": True, "allow_superset": True},
            [ONE, TWO, ONE],
            (1.0, "expected_tool_call_batch"),
        ),
    ],
)
async def test_the_number_of_calls(options, calls, outcome):
    assert await verdict_on(batch(ONE, TWO), *made(*calls), **options) == outcome


@pytest.mark.parametrize(("hardened", "reward"), [(True, 0.0), (False, 1.0)])
async def test_two_hundred_guesses_win_only_where_the_peer_is_followed(hardened, reward):
    guesses = [call("one", {"x": number}) for number in range(200)]
    assert (await verdict_on(guesses[150], *made(*guesses), hardened=hardened))[0] == reward


EXPECTED = "Cancel the booking of the large boat for Tuesday"


@pytest.mark.parametrize(
    ("text", "hardened", "same"),
    [
        ("the of for the", False, True),
        ("the of for the", True, False),
        ("Do not " + EXPECTED, False, True),
        ("Do not " + EXPECTED, True, False),
        ("Don't " + EXPECTED, True, False),
        (EXPECTED, True, True),
        ("Please cancel the large boat on Tuesday", True, True),
        ("There is no boat", True, True),
    ],
)
async def test_common_words_make_no_texts_alike(text, hardened, same):
    expected, given = call("note", {"text": EXPECTED}), call("note", {"text": text})
    assert (await verdict_on(expected, *made(given), hardened=hardened))[0] == float(same)


async def test_texts_of_common_words_are_compared_by_them():
    expected = call("say", {"text": "it is what it is"})
    assert (await verdict_on(expected, *made(expected)))[0] == 1.0
    assert (await verdict_on(expected, *made(call("say", {"text": "you are"}))))[0] == 0.0


@pytest.mark.parametrize(
    ("mode", "calls", "reward"),
    [
        ("fractional", [ONE], 1.0),
        ("fractional", [ONE, THREE], 0.5),
        ("fractional", [ONE, TWO, THREE], 1.0),
        ("f1", [ONE], 2 / 3),
        ("f1", [ONE, THREE], 0.5),
        ("f1", [ONE, TWO, THREE], 0.8),
        ("f1", [ONE, TWO], 1.0),
        ("binary_strict", [ONE, THREE], 0.0),
    ],
)
async def test_reward_modes_give_shares(mode, calls, reward):
    options = {"parallel_tool_call_rewarding": True, "allow_subset": True, "allow_superset": True}
    outcome = await verdict_on(batch(ONE, TWO), *made(*calls), parallel_tool_call_reward_mode=mode, **options)
    assert outcome[0] == pytest.approx(reward)


async def test_the_reason_is_that_of_the_first_expected_call_without_a_partner():
    expected = batch(call("tide", {"port": "Cork"}), call("tide", {"port": "Cork"}))
    outcome = await verdict_on(expected, *made(call("tide", {"port": "Cork"}), call("tide", {"harbour": "Cork"})))
    assert outcome == (0.0, "argument_object_keys_different")


@pytest.mark.parametrize(
    ("content", "category"),
    [
        ("Which port?", "expected_chat_message_found"),
        ("", "no_action_found"),
        ([{"type": "output_text", "text": " "}], "no_action_found"),
        ([{"type": "refusal", "refusal": "No."}], "no_action_found"),
        ([], "no_action_found"),
    ],
)
async def test_an_empty_text_and_a_refusal_are_no_messages(content, category):
    message = {**reply("x")["output"][0], "content": content}
    outcome = await verdict_on({"type": "message", "content": "Which port?"}, message)
    assert outcome[1] == category


@pytest.mark.parametrize("content", ["", [{"type": "output_text", "text": " "}]])
async def test_an_empty_text_is_a_message_for_the_peer(content):
    message = {**reply("x")["output"][0], "content": content}
    outcome = await verdict_on({"type": "message", "content": "Which port?"}, message, hardened=False)
    assert outcome == (1.0, "expected_chat_message_found")


@pytest.mark.parametrize(
    "options",
    [{"word_count_similarity_treshold": 0.1}, {"parallel_tool_call_reward_mode": "f2"}, {"allow_subset": "perhaps"}],
)
def test_options_that_do_not_fit_are_refused(options):
    with pytest.raises(gymq.OptionsError, match="tool_call_comparator_config"):
        SingleStep({"tool_call_comparator_config": options})
