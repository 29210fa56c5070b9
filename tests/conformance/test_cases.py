"""Case files are read completely or refused, line by line, with the place and the reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from .cases import OWN_CASES, BadLine, CoreCase, MalformedCaseError, ResourcesCase, read_file, read_folder

CORE = {"id": "pp-1", "note": "n", "input": {"op": "preprocess"}, "expect": {"rows": []}}
RESOURCES: dict[str, Any] = {
    "id": "env-s01",
    "server": "env",
    "config": {},
    "row": {"responses_create_params": {"input": "q"}},
    "response": {"output": []},
    "expect": {"reward": 1.0},
    "source": "spec",
    "note": "n",
}


def write(folder: Path, name: str, *cases: dict[str, Any] | str) -> Path:
    path = folder / name
    lines = [case if isinstance(case, str) else json.dumps(case) for case in cases]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def only_problem(path: Path) -> str:
    (line,) = read_file(path).cases
    assert isinstance(line, BadLine)
    return line.problem


@pytest.mark.parametrize("name", ["core_preprocess.jsonl", "preprocess.jsonl"])
def test_a_core_file_is_known_with_and_without_prefix(tmp_path, name):
    file = read_file(write(tmp_path, name, CORE))
    assert (file.name, file.is_core, file.label) == ("preprocess", True, name.removesuffix(".jsonl"))
    assert isinstance(file.cases[0], CoreCase)


def test_any_other_name_is_a_resources_worker(tmp_path):
    file = read_file(write(tmp_path, "env.jsonl", RESOURCES))
    assert (file.name, file.is_core) == ("env", False)
    assert isinstance(file.cases[0], ResourcesCase)


def test_a_core_file_of_an_unknown_suite_keeps_its_name(tmp_path):
    file = read_file(write(tmp_path, "core_other.jsonl", CORE))
    assert (file.name, file.is_core) == ("other", True)


@pytest.mark.parametrize("member", ["id", "note", "input", "expect"])
def test_a_core_case_needs_its_fields(tmp_path, member):
    case = {key: value for key, value in CORE.items() if key != member}
    assert member in only_problem(write(tmp_path, "config.jsonl", case))


@pytest.mark.parametrize("member", list(RESOURCES))
def test_a_resources_case_needs_its_fields(tmp_path, member):
    case = {key: value for key, value in RESOURCES.items() if key != member}
    assert member in only_problem(write(tmp_path, "env.jsonl", case))


@pytest.mark.parametrize(("name", "case"), [("config.jsonl", CORE), ("env.jsonl", RESOURCES)])
def test_a_field_that_nobody_would_look_at_is_refused(tmp_path, name, case):
    assert "tool_call" in only_problem(write(tmp_path, name, case | {"tool_call": []}))


@pytest.mark.parametrize(
    "change",
    [
        {"server": "other"},
        {"expect": {}},
        {"expect": {"error": "timeout"}},
        {"expect": {"error": "invalid_request", "reward": 0.0}},
        {"expect": {"reward": 0.0, "seed": "refused"}},
        {"expect": {"reward": 0.0, "text~": "one"}},
        {"expect": {"reward": 0.0, "text~": []}},
        {"expect": {"rewards": [1.0]}},
        {"response": None},
        {"response": None, "expect": {"error": "judge_failed"}},
        {"responses": [{"output": []}]},
        {"response": None, "responses": [{}, {}], "expect": {"rewards": [1.0]}},
        {"response": None, "responses": [{}], "expect": {"reward": 1.0}},
        {"tool_calls": [{"name": "f", "arguments": {}}]},
        {"tool_calls": [{"name": "f", "arguments": {}, "result": 1, "status": 200}]},
        {"config": None},
        {"row": []},
    ],
    ids=json.dumps,
)
def test_a_resources_case_that_makes_no_sense_is_refused(tmp_path, change):
    assert "env.jsonl:1: malformed case" in only_problem(write(tmp_path, "env.jsonl", RESOURCES | change))


@pytest.mark.parametrize(
    "reply",
    [
        7,
        None,
        {},
        {"text": "A"},
        {"output": [], "raise": "x"},
        {"status": 500},
        {"when": {}, "reply": "A"},
        {"when": [], "reply": "A"},
        {"when": {"n": "1"}},
        {"when": {"n": "1"}, "reply": {}},
        {"when": {"contains": "text"}, "reply": "A"},
    ],
    ids=json.dumps,
)
def test_an_unknown_form_of_a_judge_reply_is_refused(tmp_path, reply):
    problem = only_problem(write(tmp_path, "env.jsonl", RESOURCES | {"judge_replies": ["A", reply]}))
    assert "judge_replies[1]" in problem


@pytest.mark.parametrize(
    "reply",
    ["A", {"output": []}, {"status": 500, "body": "down"}, {"raise": "x"}, {"when": {"contains": ["a"]}, "reply": "A"}],
)
def test_the_documented_forms_of_a_judge_reply_are_accepted(tmp_path, reply):
    file = read_file(write(tmp_path, "env.jsonl", RESOURCES | {"judge_replies": [reply]}))
    assert isinstance(file.cases[0], ResourcesCase)


def test_a_component_reply_needs_its_component(tmp_path):
    case = RESOURCES | {"component_replies": [{"reply": 1}]}
    assert "component" in only_problem(write(tmp_path, "env.jsonl", case))


@pytest.mark.parametrize(
    "expect", [{}, {"error": {}}, {"error": {"kind": "config"}, "resolved": {}}, {"error": {"kind": "x", "text": "y"}}]
)
def test_a_core_expectation_that_makes_no_sense_is_refused(tmp_path, expect):
    assert "config.jsonl:1: malformed case" in only_problem(write(tmp_path, "config.jsonl", CORE | {"expect": expect}))


@pytest.mark.parametrize("line", ["", "  ", "{", "[]", "null", '"x"', '{"id": "a"} {"id": "b"}', "\ufeff{}"])
def test_a_line_that_is_no_json_object_is_refused(tmp_path, line):
    assert "env.jsonl:1" in only_problem(write(tmp_path, "env.jsonl", line))


def test_a_bad_line_does_not_hide_the_others(tmp_path):
    file = read_file(write(tmp_path, "env.jsonl", RESOURCES, "", RESOURCES | {"id": "env-s02"}))
    assert [line.id for line in file.cases] == ["env-s01", "env.jsonl:2", "env-s02"]


def test_a_line_separator_inside_a_text_does_not_end_the_line(tmp_path):
    case = json.dumps(RESOURCES | {"note": "a\u2028b\x85c"}, ensure_ascii=False)
    assert read_file(write(tmp_path, "env.jsonl", case)).cases[0].id == "env-s01"


def test_a_file_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "env.jsonl"
    path.write_bytes(b'{"id": "\xff"}\n')
    assert "UTF-8" in only_problem(path)


def test_an_empty_file_is_refused(tmp_path):
    assert "empty" in only_problem(write(tmp_path, "env.jsonl"))


def test_an_id_that_occurs_twice_is_refused_the_second_time(tmp_path):
    write(tmp_path, "a.jsonl", RESOURCES | {"server": "a", "id": "x"})
    write(tmp_path, "b.jsonl", RESOURCES | {"server": "b", "id": "x"})
    first, second = read_folder(tmp_path)
    assert isinstance(first.cases[0], ResourcesCase)
    assert isinstance(second.cases[0], BadLine)
    assert "a.jsonl:1" in second.cases[0].problem


def test_a_folder_without_case_files_is_refused(tmp_path):
    (tmp_path / "README.md").write_text("nothing here")
    with pytest.raises(MalformedCaseError, match="has no"):
        read_folder(tmp_path)


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(MalformedCaseError, match="is not a folder"):
        read_folder(tmp_path / "missing")


def test_the_repository_has_well_formed_cases_of_its_own():
    lines = [line for file in read_folder(OWN_CASES) for line in file.cases]
    assert lines
    assert [line.problem for line in lines if isinstance(line, BadLine)] == []
