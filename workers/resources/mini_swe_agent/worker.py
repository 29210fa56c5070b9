"""mini_swe_agent: a fault in a repository, repaired by shell commands in a container. Hidden tests decide.

The agent drives the container and ends with a patch. This is the other side: the patch is applied to a fresh container
and the tests are run by SWE-bench's harness, whose report is the verdict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

import pydantic
from gymq.workers.resources.mini_swe_agent.harness import EvaluationTimedOut, Harness
from gymq.workers.resources.swerl_gen.edits import is_of_tests

import gymq
from gymq import responses
from gymq.sandbox import check_path

KINDS = ("FAIL_TO_PASS", "PASS_TO_PASS")

_DIFF = re.compile(r"^diff --git .*?(?=^```|\Z)", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"^(?=diff --git )", re.MULTILINE)
# Lines that name files for git, or for `patch`, to which SWE-bench falls back.
_NAMES = re.compile(r"^(?:diff --git|---|\+\+\+|\*\*\*|Index:|(?:rename|copy) (?:from|to)) (.+)$", re.MULTILINE)
_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')


def _is_plain(instance_id: str) -> str:
    check_path(f"/{instance_id}")  # the harness writes into folders of this name
    return instance_id


class InstanceRow(gymq.Row):
    """A row of SWE-bench or SWE-Gym. Its other members go to the harness as they are."""

    instance_id: Annotated[str, pydantic.AfterValidator(_is_plain)]


class MiniSwe(gymq.Resources[InstanceRow]):
    """Reward 1 if SWE-bench's tests find the instance resolved by the patch that the episode ends with."""

    class Options(gymq.WorkerOptions):
        eval_timeout: pydantic.PositiveInt = 1800  # seconds for the tests of one instance
        concurrency: pydantic.PositiveInt = 16  # evaluations at a time, in one process
        hardened: bool = True  # False: a patch may change how tests are run

    reward_range = (0.0, 1.0)
    deterministic = False
    needs = frozenset({"sandbox"})

    async def start(self) -> None:
        self._harness = Harness(self.options.eval_timeout, self.options.concurrency)

    async def verify(self, request: gymq.VerifyRequest[InstanceRow]) -> gymq.Verdict:
        row = request.row
        try:
            report = await self.evaluate(row.model_dump(exclude={"responses_create_params"}), request.response)
        except EvaluationTimedOut:
            report, timed_out = None, True
        else:
            timed_out = False
        wanted = (row.model_extra or {}).get("FAIL_TO_PASS")
        reward = 0.0 if some_skipped(report, row.instance_id, wanted) else reward_of(report, row.instance_id)
        return gymq.Verdict(reward, instance_id=row.instance_id, metadata=report, timed_out=timed_out)

    async def evaluate(self, instance: dict[str, Any], response: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the harness's report on an episode. See `Harness.evaluate`."""
        patch = find_patch(response)
        if self.options.hardened:
            patch = without_tests(patch, str(instance.get("patch") or ""))
        return await self._harness.evaluate(instance, patch)


def find_patch(response: Mapping[str, Any]) -> str:
    """Return the diff in the response's last message, from any role; empty if it has none.

    It begins with the first line `diff --git` and ends at a closing fence, or with the text. The loop of mini-swe-agent
    ends with the output of the command that submits, which it records as a user message.
    """
    messages = [item for item in response["output"] if responses.is_message(item)]
    if not messages:
        return ""
    content = messages[-1].get("content") or ""
    if not isinstance(content, str):
        content = "".join(text for part in content if isinstance(text := part.get("text"), str))
    found = _DIFF.search(content)
    return "" if found is None else found[0].rstrip("\n") + "\n"


def without_tests(patch: str, reference: str) -> str:
    """Return a patch without the files of tests and of how they are run, unless the reference changes them too."""
    allowed = _paths(reference)
    parts = _FILE.split(patch)
    return "".join(part for part in parts if not any(map(is_of_tests, _paths(part) - allowed)))


def _paths(patch: str) -> set[str]:
    """Return all paths that a patch could change, as any of git and patch reads it, without the `a/` or `b/`."""
    paths = set()
    for named in _NAMES.findall(patch):
        line = named.partition("\t")[0].strip()
        for name in (line, *_NAME.findall(line)):
            path = _unquoted(name)
            paths |= {path, path.partition("/")[2]}
    return paths


def _unquoted(name: str) -> str:
    """Return a name as git means it: in quotation marks it has the escapes of C."""
    if '"' not in name:
        return name
    return name.strip('"').encode("ascii", "backslashreplace").decode("unicode_escape", "replace")


def reward_of(report: Any, instance_id: str) -> float:
    """Return 1 if the report marks the instance as resolved, and at least one test ran; otherwise 0.

    Args:
        report: `{"eval_report": {instance_id: {"resolved", "tests_status"}}}`, as `get_eval_report` of SWE-bench makes
            the inner part. Anything else, also null, is worth 0.
    """
    entry = _member(_member(report, "eval_report"), instance_id)
    tests = _member(entry, "tests_status")
    return float(_member(entry, "resolved") is True and _tests_that_ran(tests) > 0)


def some_skipped(report: Any, instance_id: str, wanted: Any) -> bool:
    """Return whether fewer tests passed or failed than have to pass: SWE-bench leaves those out that were skipped.

    Args:
        report: as in `reward_of`.
        wanted: the row's `FAIL_TO_PASS`, a list or its JSON; anything else names no tests.
    """
    try:
        names = json.loads(wanted) if isinstance(wanted, str) else wanted
    except (ValueError, RecursionError):
        return False
    tests = _member(_member(_member(report, "eval_report"), instance_id), "tests_status")
    ran = _tests_that_ran({KINDS[0]: _member(tests, KINDS[0], {})})
    return isinstance(names, list) and ran < len(names)


def _tests_that_ran(tests: Any) -> int:
    """Return how many tests a `tests_status` lists; 0 if any part of it has another form."""
    count = 0
    for kind in KINDS:
        outcomes = _member(tests, kind, {})
        for outcome in ("success", "failure"):
            names = outcomes.get(outcome, []) if isinstance(outcomes, dict) else None
            if not isinstance(names, list):
                return 0
            count += len(names)
    return count


def _member(value: Any, name: str, default: Any = None) -> Any:
    return value.get(name, default) if isinstance(value, dict) else None
