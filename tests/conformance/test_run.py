"""A whole run over a folder: what counts as passed, failed and loose, and what is said at the end."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .cases import CASES_VARIABLE

TEST = Path(__file__).with_name("test_conformance.py")


def choice_case(name: str, text: object, expected: object, **members: object) -> str:
    """A chat choice that says `text`; `expected` is the text, or an error, that the case expects."""
    content = [{"type": "output_text", "text": expected, "annotations": []}]
    output = [{"id": "<msg_*>", "type": "message", "role": "assistant", "status": "completed", "content": content}]
    case = {
        "id": name,
        "note": "n",
        "input": {
            "options": {"return_token_id_information": False, "uses_reasoning_parser": True},
            "choice": {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}},
        },
        "expect": {"output": output} if isinstance(expected, str) else {"error": expected},
    }
    return json.dumps(case | members)


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", f"{TEST}::test_case", "-p", "no:cacheprovider", "--tb=short", "-rf"]
    environment = {**os.environ, CASES_VARIABLE: str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def mixed_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    lines = [
        choice_case("right", "yes", "yes"),
        choice_case("wrong", "yes", "no"),
        choice_case("loose-right", "yes", "yes", loose="an accident"),
        choice_case("loose-wrong", "yes", "no", loose="an accident"),
        choice_case("answered", "yes", {"kind": "bad_upstream_reply"}),
        choice_case("refused", 7, "yes"),
        choice_case("refused-rightly", 7, {"kind": "bad_upstream_reply", "mention": ["content"]}),
        choice_case("refused-vaguely", 7, {"kind": "bad_upstream_reply", "mention": ["the moon"]}),
        "{",
    ]
    (folder / "chat_to_responses.jsonl").write_text("\n".join(lines) + "\n")
    worker_case = {"id": "u-1", "server": "unheard_of", "config": {}, "row": {}, "response": {"output": []}}
    worker_case |= {"expect": {"reward": 1}, "source": "spec", "note": "n"}
    (folder / "unheard_of.jsonl").write_text(json.dumps(worker_case) + "\n")
    (folder / "core_unheard_of.jsonl").write_text(choice_case("c-1", "yes", "yes"))
    return run(folder)


def test_each_file_gets_a_line_with_its_counts_at_the_very_end(mixed_run):
    *lines, total = mixed_run.stdout.strip().splitlines()[-4:]
    assert lines == [
        "chat_to_responses: 3 passed, 5 failed, 1 loose",
        "core_unheard_of: 0 passed, 1 failed, 0 loose",
        "unheard_of: 0 passed, 1 failed, 0 loose",
    ]
    assert "7 failed" in total
    assert "1 xfailed" in total


def test_the_ids_of_the_failing_cases_are_told(mixed_run):
    failed = re.findall(r"^FAILED .*::test_case\[(.*?)\]", mixed_run.stdout, flags=re.MULTILINE)
    wrong = ["wrong", "answered", "refused", "refused-vaguely"]
    assert sorted(failed) == sorted([*wrong, "chat_to_responses.jsonl:9", "u-1", "c-1"])


@pytest.mark.parametrize(
    "reason",
    [
        'expected "no", got "yes"',
        "a refusal (bad_upstream_reply) is expected, but it was answered",
        "an answer is expected, but it was refused",
        'the message does not mention "the moon"',
        "chat_to_responses.jsonl:9: malformed case",
        "there is no resources worker named unheard_of",
        "there is no suite named unheard_of",
    ],
)
def test_the_reason_of_a_failure_is_told(mixed_run, reason):
    assert reason in mixed_run.stdout


def test_a_run_with_failures_fails(mixed_run):
    assert mixed_run.returncode == 1


@pytest.mark.nightly
def test_an_empty_folder_fails(tmp_path):
    finished = run(tmp_path)
    assert finished.returncode == 1
    assert "has no *.jsonl case file" in finished.stdout


@pytest.mark.nightly
def test_a_folder_that_does_not_exist_fails(tmp_path):
    finished = run(tmp_path / "missing")
    assert finished.returncode == 1
    assert "is not a folder" in finished.stdout
