"""What a reply has to pass before its keystrokes are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gymq.workers.resources.equivalence_llm_judge.worker import ExpectedRow
from gymq.workers.resources.terminus_judge.batches import FORMATS, Batch, parse_object, read_batch
from gymq.workers.resources.terminus_judge.worker import BatchRule

from gymq.responses import last_assistant_text


class BatchRow(ExpectedRow):
    threshold: float | None = None


@dataclass
class Findings:
    """The findings about a reply; None: not checked."""

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
        """Note why the reply earns no reward."""
        self.failure_reason = reason


def pass_gates(
    row: BatchRow, response: Mapping[str, Any], findings: Findings, rule: BatchRule
) -> tuple[Batch, Batch] | None:
    """Return the expected batch and the reply's; None if a gate is closed, which is then the reason in the findings."""
    findings.expected_answer = row.expected
    if not row.expected:
        findings.fail("expected_answer_invalid")
        return None
    reply = last_assistant_text(response)
    if not reply:
        findings.fail("model_output_invalid")
        return None
    findings.model_output = reply.rpartition("</think>")[2].strip()
    expected_object = parse_object(row.expected)
    if expected_object is None:
        findings.fail("expected_answer_invalid")
        return None
    findings.parsed_output = given_object = parse_object(findings.model_output)
    if given_object is None:
        findings.fail("model_output_invalid")
        return None
    return _fitting(row, expected_object, given_object, findings, rule)


def _fitting(
    row: BatchRow, expected_object: dict[str, Any], given_object: dict[str, Any], findings: Findings, rule: BatchRule
) -> tuple[Batch, Batch] | None:
    harness = (row.metadata or {}).get("harness")
    if not isinstance(harness, str) or harness not in FORMATS:
        findings.fail("unknown_harness")
        return None
    expected = read_batch(FORMATS[harness], expected_object)
    if expected is None:
        findings.fail("expected_answer_invalid")
        return None
    given = read_batch(FORMATS[harness], given_object)
    findings.schema_check_passed = given is not None
    if given is None:
        findings.fail("schema_check_failed")
        return None
    findings.task_complete_check_passed = rule.fits(given.is_complete, expected.is_complete)
    if not findings.task_complete_check_passed:
        findings.fail("task_complete_check_failed")
        return None
    return expected, given
