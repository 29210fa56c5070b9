"""What the comparison lets through, and what it must not."""

import math

import pytest

from .comparison import (
    CORE,
    FIELDS,
    TOOL,
    differences,
    field_differences,
    list_differences,
    mention_differences,
    reward_differences,
    tool_differences,
)

ALL_RULES = pytest.mark.parametrize("rules", [CORE, FIELDS, TOOL], ids=["core", "fields", "tool"])


@ALL_RULES
@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("1", 1),
        (1, "1"),
        (1, True),
        (True, 1),
        (False, 0),
        (0, None),
        ("", None),
        (False, None),
        ([], {}),
        ({}, []),
        ([], None),
        ({}, None),
        ("a", "A"),
        ("a", "a "),
        ("a", ["a"]),
        ({"a": 1}, [["a", 1]]),
        ([1], [1, 1]),
        ([1, 1], [1]),
        ([1, 2], [2, 1]),
        ({"a": 1}, {}),
        ({"a": 1}, {"A": 1}),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}),
        (None, 0),
        (1.0, math.nan),
        (math.nan, 1.0),
        (math.inf, -math.inf),
        (1e308, math.inf),
        (0.0, 1e-12),
    ],
    ids=repr,
)
def test_values_that_differ_are_told_apart(rules, expected, actual):
    assert differences(expected, actual, rules)


@ALL_RULES
@pytest.mark.parametrize(
    "value",
    [None, True, 0, -1, 2**70, 0.1, math.nan, math.inf, "", "x", [], [None, [1]], {}, {"a": {"b": [1.5, "c"]}}],
    ids=repr,
)
def test_a_value_agrees_with_itself(rules, value):
    assert differences(value, value, rules) == []


@ALL_RULES
def test_an_integral_float_is_the_same_number_as_the_integer(rules):
    assert differences({"a": 1}, {"a": 1.0}, rules) == []
    assert differences({"a": 1.0}, {"a": 1}, rules) == []


def test_key_order_is_irrelevant():
    assert differences({"a": 1, "b": 2}, {"b": 2, "a": 1}, CORE) == []


def test_every_difference_is_told_with_its_path():
    expected = {"a": [1, {"b": 2}], "c": "x", "d": 1}
    actual = {"a": [1, {"b": 3}], "c": "y", "e": 1}
    assert differences(expected, actual, CORE) == [
        "answer.a[1].b: expected 2, got 3",
        'answer.c: expected "x", got "y"',
        "answer.d: missing, expected 1",
        "answer.e: not expected, got 1",
    ]


def test_core_rejects_a_field_that_is_not_expected():
    assert differences({"a": 1}, {"a": 1, "b": 2}, CORE)
    assert differences([{"a": 1}], [{"a": 1, "b": False}], CORE)


def test_core_takes_a_null_field_as_absent_on_both_sides_and_at_every_depth():
    assert differences({"a": {"b": None}}, {"a": {}}, CORE) == []
    assert differences({"a": {}}, {"a": {"b": None}}, CORE) == []
    assert differences({"a": None}, {}, CORE) == []
    assert differences([{}], [{"a": None}], CORE) == []


def test_core_keeps_null_elements_of_lists():
    assert differences([None], [], CORE)
    assert differences([], [None], CORE)
    assert differences([1, None], [1, 2], CORE)


@pytest.mark.parametrize("factor", [1 + 9e-10, 1 - 9e-10])
def test_core_floats_within_a_relative_1e_9_agree(factor):
    assert differences(-3e5, -3e5 * factor, CORE) == []


@pytest.mark.parametrize("factor", [1 + 2e-9, 1 - 2e-9])
def test_core_floats_further_apart_differ(factor):
    assert differences(-3e5, -3e5 * factor, CORE)


def test_core_integers_are_compared_exactly():
    assert differences(10**12, 10**12 + 1, CORE)
    assert differences(10**12, 10.0**12 + 1, CORE)


def test_core_compares_json_text_as_text():
    assert differences({"arguments": '{"a": 1}'}, {"arguments": '{"a":1}'}, CORE)


@pytest.mark.parametrize("prefix", ["rs", "msg", "resp"])
def test_core_takes_a_random_id_where_the_placeholder_stands(prefix):
    assert differences(f"<{prefix}_*>", f"{prefix}_0a1b2c3d", CORE) == []


@pytest.mark.parametrize("actual", ["rs_0a1b", "msg_", "msg_0a1bx", "msg_0A1B", "xmsg_0a1b", "<msg_*>", "", None, 7])
def test_core_takes_nothing_else_for_a_random_id(actual):
    assert differences("<msg_*>", actual, CORE)


def test_core_compares_other_ids_literally():
    assert differences("msg_0a1b", "msg_0a1c", CORE)


def test_core_has_no_wildcard():
    assert differences("*", "anything", CORE)


def test_a_reward_within_1e_6_agrees():
    assert reward_differences(0.5, 0.5 + 9e-7, "reward") == []
    assert reward_differences(0, 0.0, "reward") == []


@pytest.mark.parametrize("actual", [0.5 + 2e-6, 0.5 - 2e-6, None, "0.5", math.nan, True, [0.5]])
def test_any_other_reward_differs(actual):
    assert reward_differences(0.5, actual, "reward")


def test_a_boolean_is_no_reward():
    assert reward_differences(1.0, True, "reward")


def test_fields_that_are_not_named_are_not_compared():
    assert field_differences({"reward": 1.0}, {"reward": 1.0, "extracted_answer": "B"}) == []


def test_a_missing_field_differs_even_from_null():
    assert field_differences({"extracted_answer": None}, {"reward": 1.0})
    assert field_differences({"extracted_answer": None}, {"extracted_answer": None}) == []


def test_a_missing_reward_differs():
    assert field_differences({"reward": 0.0}, {"extracted_answer": None})


def test_fields_other_than_the_reward_have_no_tolerance():
    assert field_differences({"score": 0.5}, {"score": 0.5 + 1e-12})


def test_fields_inside_a_field_are_compared_exactly():
    assert field_differences({"click": {"x": 1}}, {"click": {"x": 1, "y": 2}})
    assert field_differences({"calls": [{"name": "f"}]}, {"calls": [{"name": "f", "id": None}]})


def test_a_dotted_key_addresses_a_nested_field():
    assert field_differences({"metadata.code": -2}, {"metadata": {"code": -2}}) == []
    assert field_differences({"metadata.code": -2}, {"metadata": {"code": -3}})
    assert field_differences({"metadata.code": -2}, {"metadata": {}})
    assert field_differences({"metadata.code": -2}, {})


def test_a_nested_field_that_does_not_exist_is_null():
    assert field_differences({"metadata.code": None}, {"metadata": {}}) == []
    assert field_differences({"metadata.code": None}, {"metadata": None}) == []
    assert field_differences({"metadata.code": None}, {"metadata": {"code": 0}})


def test_a_star_stands_for_any_value_but_null():
    assert field_differences({"error": "*"}, {"error": "could not parse"}) == []
    assert field_differences({"error": "*"}, {"error": 0}) == []
    assert field_differences({"error": "*"}, {"error": None})
    assert field_differences({"error": "*"}, {})


def test_a_tilde_key_wants_all_its_texts():
    assert field_differences({"feedback~": ["one", "two"]}, {"feedback": "two and one"}) == []
    assert field_differences({"feedback~": ["one", "two"]}, {"feedback": "only one"})
    assert field_differences({"feedback~": ["one"]}, {"feedback": None})
    assert field_differences({"feedback~": ["one"]}, {})
    assert field_differences({"feedback~": ["one"]}, {"feedback": ["one"]})


def test_a_tilde_key_may_be_dotted():
    assert field_differences({"metadata.text~": ["b"]}, {"metadata": {"text": "abc"}}) == []
    assert field_differences({"metadata.text~": ["d"]}, {"metadata": {"text": "abc"}})


def test_a_tool_result_is_compared_by_the_fields_given_at_every_depth():
    assert tool_differences({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}, "result") == []
    assert tool_differences([{"a": 1}], [{"a": 1, "b": 2}], "result") == []


def test_a_tool_result_needs_every_field_given():
    assert tool_differences({"id": None}, {}, "result")
    assert tool_differences({"a": {"b": 1}}, {"a": {}}, "result")


def test_numbers_of_a_tool_result_have_a_relative_tolerance_of_1e_9():
    assert tool_differences({"value": 10**12}, {"value": 10.0**12 + 1}, "result") == []
    assert tool_differences({"value": 0.3}, {"value": 0.1 + 0.2}, "result") == []
    assert tool_differences({"value": 0.3}, {"value": 0.3 * (1 + 2e-9)}, "result")


def test_json_objects_in_texts_of_a_tool_result_are_compared_parsed():
    assert tool_differences({"output": '{"a":1,"b":[2]}'}, {"output": '{"b": [2.0], "a": 1}'}, "result") == []
    assert tool_differences({"output": '{"a":1}'}, {"output": '{"a":2}'}, "result")
    assert tool_differences({"output": '{"a":1}'}, {"output": {"a": 1}}, "result")
    assert tool_differences({"output": "1"}, {"output": "1.0"}, "result")


def test_a_tool_answer_that_is_json_text_is_compared_parsed():
    assert tool_differences({"count": 6}, '{"count": 6}', "result") == []
    assert tool_differences({"count": 6}, '{"count": 7}', "result")
    assert tool_differences("plain text", "plain text", "result") == []


def test_a_star_in_a_tool_result_stands_for_any_value_but_null():
    assert tool_differences({"a": "*", "b": ["*"]}, {"a": 1, "b": [{}]}, "result") == []
    assert tool_differences({"a": "*"}, {"a": None}, "result")
    assert tool_differences({"a": "*"}, {}, "result")


def test_component_calls_are_compared_by_the_fields_given_in_order():
    sent = [{"call": "search", "query": "q", "depth": 1}, {"call": "extract"}]
    assert list_differences([{"call": "search", "query": "q"}, {}], sent, "calls") == []
    assert list_differences([{"call": "extract"}, {"call": "search"}], sent, "calls")
    assert list_differences([{"call": "search"}], sent, "calls")
    assert list_differences([*sent, {}], sent, "calls")
    assert list_differences([{"query": "r"}, {}], sent, "calls")
    assert list_differences([{"timeout": None}, {}], sent, "calls")


def test_every_mention_must_occur_in_the_message():
    assert mention_differences(["env_b", "agent_a"], "agent_a refers to env_b, which does not exist") == []
    assert len(mention_differences(["env_b", "agent_a"], "a reference does not exist")) == 2
    assert mention_differences(["env_b"], "env_B")
