"""Cases are read out of reference data as they are meant, shown on data of our own."""

import json

from .references import function_calling, json_schema_suite, math_verify, sql_statements


def test_pairs_of_answers_are_read_and_other_tests_left_out(tmp_path):
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_one.py").write_text(
        "import pytest\n"
        '@pytest.mark.parametrize("gold, pred, expected", [("1", "2", 0), ("3", "3", 1), (str(4), "4", 1)])\n'
        "def test_pairs(gold, pred, expected): ...\n"
        '@pytest.mark.parametrize("gold,pred,strict,expected", [("1", "2", True, 0)])\n'
        "def test_options(gold, pred, strict, expected): ...\n"
    )
    cases = list(math_verify(tmp_path))
    assert [(case.name, case.row["expected_answer"], case.reward) for case in cases] == [
        ("test_one.py::test_pairs[0]", "1", 0.0),
        ("test_one.py::test_pairs[1]", "3", 1.0),
    ]


def test_what_a_strict_schema_changes_is_known(tmp_path):
    folder = tmp_path / "json" / "tests" / "draft2020-12"
    folder.mkdir(parents=True)
    group = {"description": "g", "tests": [{"description": "t", "data": {}, "valid": True}]}
    groups = [{**group, "schema": {"type": "object"}}, {**group, "schema": {"properties": {"a": {}}}}]
    (folder / "one.json").write_text(json.dumps(groups))
    assert [bool(case.known) for case in json_schema_suite(tmp_path)] == [False, True]


def test_right_calls_are_spoilt_in_each_way(tmp_path):
    folder = tmp_path / "bfcl_eval" / "data" / "possible_answer"
    folder.mkdir(parents=True)
    truth = [{"f": {"a": [1, 2], "b": ["", 3]}}]
    for name in (
        "simple",
        "multiple",
        "parallel",
        "parallel_multiple",
        "live_simple",
        "live_multiple",
        "live_parallel",
    ):
        lines = [json.dumps({"id": "simple_0", "ground_truth": truth})] if name == "simple" else []
        (folder / f"BFCL_v3_{name}.json").write_text("\n".join(lines))
    cases = {case.group: case for case in function_calling(tmp_path)}
    assert cases["the right calls"].row["expected_answers"] == [{"name": "f", "arguments": {"a": 1}}]
    made = {group: [item["arguments"] for item in case.response["output"]] for group, case in cases.items()}
    assert made["an argument is missing"] == ["{}"]
    assert made["an argument is another"] == ['{"a": [1, "and something else"]}']
    assert made["a call is missing"] == []
    assert {group for group, case in cases.items() if case.reward} == {"the right calls", "the right calls, backwards"}


def test_statements_stand_in_blocks_and_queries_in_prose_too(tmp_path):
    folder = tmp_path / "tests" / "fixtures"
    folder.mkdir(parents=True)
    (folder / "identity.sql").write_text("-- a comment\nSELECT 1\nCOMMIT\n\n")
    groups = [(case.row["sql"], case.group) for case in sql_statements(tmp_path)]
    assert groups == [
        ("SELECT 1;", "in a block"),
        ("SELECT 1;", "in a block without a tag"),
        ("SELECT 1;", "in prose"),
        ("COMMIT;", "in a block"),
    ]
