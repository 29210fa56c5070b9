"""What a reply has to pass before its keystrokes are compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymq
from gymq.responses import last_assistant_text
from workers.resources.terminus_judge.batches import FORMATS, Batch, parse_object, read_batch


class BatchRow(gymq.Row):
    expected_answer: str | None = None
    metadata: dict[str, Any] | None = None
    threshold: float | None = None
    uuid: str | int | None = None

    @property
    def expected(self) -> str:
        if self.expected_answer:
            return self.expected_answer
        given = (self.metadata or {}).get("expected_answer")
        return "" if given is None else str(given)


@dataclass
class Findings:
    """What was found out about a reply; None: it did not come to that."""

    expected_answer: str = ""
    model_output: str = ""
    parsed_output: dict[str, Any] | None = None
    similarity_score: float | None = None
    schema_check_passed: bool | None = None
    task_complete_check_passed: bool | None = None
    string_similarity_passed: bool | None = None
    judge_passed: bool | None = None
    failure_reason: str = "none"
    judge_evaluations: list[dict[str, Any]] = field(default_factory=list)

    def fail(self, reason: str) -> None:
        """Note why there is no reward."""
        self.failure_reason = reason


def pass_gates(row: BatchRow, response: dict[str, Any], findings: Findings) -> tuple[Batch, Batch] | None:
    """The expected batch and the reply's; None if a gate is closed, which is then the reason in the findings."""
    findings.expected_answer = row.expected
    if not row.expected:
        return findings.fail("expected_answer_invalid")
    reply = last_assistant_text(response)
    if not reply:
        return findings.fail("model_output_invalid")
    findings.model_output = reply.rpartition("</think>")[2].strip()
    expected_object = parse_object(row.expected)
    if expected_object is None:
        return findings.fail("expected_answer_invalid")
    findings.parsed_output = given_object = parse_object(findings.model_output)
    if given_object is None:
        return findings.fail("model_output_invalid")
    return _fitting(row, expected_object, given_object, findings)


def _fitting(
    row: BatchRow, expected_object: dict[str, Any], given_object: dict[str, Any], findings: Findings
) -> tuple[Batch, Batch] | None:
    harness = (row.metadata or {}).get("harness")
    if not isinstance(harness, str) or harness not in FORMATS:
        return findings.fail("unknown_harness")
    expected = read_batch(FORMATS[harness], expected_object)
    if expected is None:
        return findings.fail("expected_answer_invalid")
    given = read_batch(FORMATS[harness], given_object)
    findings.schema_check_passed = given is not None
    if given is None:
        return findings.fail("schema_check_failed")
    findings.task_complete_check_passed = given.is_complete or not expected.is_complete
    if not findings.task_complete_check_passed:
        return findings.fail("task_complete_check_failed")
    return expected, given
