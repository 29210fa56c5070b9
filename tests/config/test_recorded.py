"""What is kept of a configuration with a run, and which of its changes keep the run from being resumed."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gymq.config import Instance, record_instances
from gymq.data.run_changes import RecordedInstance, changed_fields, changed_options

SECRETS: dict[str, Any] = {
    "openai_api_key": "sk-abcdef",
    "password": 12345678,
    "openai_default_headers": {"Authorization": "Bearer abcdef", "X-Team": "abcdef"},
    "dsn": "postgres://me:abcdef@host/db",
    "search_url": "http://host/find?api_key=abcdef",
}


def recorded(
    kind: Any = "models", implementation: str = "openai_model", /, **options: Any
) -> dict[str, RecordedInstance]:
    return record_instances([Instance("policy", kind, implementation, {"entrypoint": "worker.py", **options})])


def changes(before: dict[str, RecordedInstance], now: dict[str, RecordedInstance]) -> tuple[list[str], list[str]]:
    asked, not_asked = changed_options(before, now)
    return [str(change) for change in asked], not_asked


def test_no_secret_is_kept() -> None:
    text = msgspec.json.encode(recorded(**SECRETS)).decode()
    assert "abcdef" not in text
    assert "12345678" not in text
    assert "postgres://****@host/db" in text


def test_a_rotated_secret_changes_nothing() -> None:
    rotated = {
        **SECRETS,
        "openai_api_key": "sk-ghi",
        "password": 1,
        "openai_default_headers": {"Authorization": "x", "X-Team": "y"},
    }
    assert changes(recorded(**SECRETS), recorded(**rotated)) == ([], [])


def test_what_is_kept_is_read_back_from_json_unchanged() -> None:
    kept = recorded(temperature=1.0, limit=2**80, ratio=float("inf"), extra_body={"a": {"b": [1, None]}}, tokenizer="t")
    text = msgspec.json.encode(kept)
    assert msgspec.json.decode(text, type=dict[str, RecordedInstance]) == kept


@pytest.mark.parametrize(
    ("before", "now", "asked"),
    [
        ({"openai_model": "a"}, {"openai_model": "b"}, "policy.openai_model changed from a to b"),
        (
            {"extra_body": {"top_k": 1}},
            {"extra_body": {"top_k": 2}},
            "policy.extra_body.top_k changed from 1 to 2",
        ),
        ({}, {"skill": 0.5}, "policy.skill changed from nothing to 0.5"),
        ({"max_output_tokens": 5}, {"max_output_tokens": 6}, "policy.max_output_tokens changed from 5 to 6"),
        ({"tokenizer": "a"}, {"tokenizer": "b"}, "policy.tokenizer changed (the values are not shown)"),
        ({"text": "a" * 70}, {"text": "b"}, f"policy.text changed from {'a' * 60}... to b"),
    ],
)
def test_what_changes_the_question_is_named_with_both_values(
    before: dict[str, Any], now: dict[str, Any], asked: str
) -> None:
    assert changes(recorded(**before), recorded(**now)) == ([asked], [])


@pytest.mark.parametrize(
    "option",
    ["openai_base_url", "base_url", "dialect", "max_concurrent_requests", "cache", "my_timeout_s"],
)
def test_the_endpoint_of_a_model_is_not_what_is_asked(option: str) -> None:
    assert changes(recorded(**{option: 1}), recorded(**{option: 2})) == ([], [f"policy.{option} changed from 1 to 2"])


def test_the_same_options_of_a_verifier_are_part_of_the_verdict() -> None:
    before, now = (recorded("resources", "code_gen", exec_timeout_s=seconds) for seconds in (1, 2))
    assert changes(before, now) == (["policy.exec_timeout_s changed from 1 to 2"], [])
    before, now = (recorded("resources", "code_gen", max_concurrency=number) for number in (1, 2))
    assert changes(before, now) == ([], ["policy.max_concurrency changed from 1 to 2"])


def test_a_worker_that_only_one_of_them_has_is_no_change() -> None:
    assert changes({}, recorded()) == changes(recorded(), {}) == ([], [])
    assert changes(recorded("models", "a"), recorded("models", "b")) == (["policy changed from a to b"], [])


def test_fields_inside_of_fields_are_named_by_path() -> None:
    found = changed_fields({"prompt": None, "a": {"b": 1, "c": 2}}, {"prompt": {"user": "x"}, "a": {"b": 1}})
    assert [str(change) for change in found] == [
        "a.c changed from 2 to nothing",
        "prompt.user changed from nothing to x",
    ]


def test_code_that_was_edited_is_named_and_keeps_no_run_from_being_resumed(tmp_path: Path) -> None:
    file = tmp_path / "letters.py"
    found = []
    for text in ("a = 1", "a = 1", "a = 2"):
        file.write_text(text)
        found.append(recorded("resources", f"{file}:Letters"))
    assert changes(found[0], found[1]) == ([], [])
    said = f"{file}:Letters changed; rollouts that are done stay as they are"
    assert changes(found[1], found[2]) == ([], [said])
    file.unlink()
    assert changes(found[2], recorded("resources", f"{file}:Letters")) == ([], [])
