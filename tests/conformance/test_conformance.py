"""Every case of every case file is a test of its own; its id is the case's id."""

from collections.abc import Callable
from typing import Any

import pytest

from gymq.processes import KillableProcesses
from tests.support.processes import kept_processes

from .cases import (
    CASE_FILE,
    OWN_CASES,
    BadLine,
    CaseFile,
    MalformedCaseError,
    ResourcesCase,
    cases_folder,
    read_folder,
)
from .comparison import Mismatch
from .core import check_core, find_suite
from .suites.resources import OURS, check_resources, find_worker

__all__ = ["kept_processes"]

EMPTY_FOLDER = CaseFile(cases_folder(), cases_folder().name, False, ())


def _parameters() -> list[Any]:
    try:
        files = read_folder(cases_folder())
    except MalformedCaseError as error:
        return [pytest.param(EMPTY_FOLDER, BadLine("folder", str(error)), id="folder")]
    return [pytest.param(file, case, id=case.id) for file in files for case in file.cases]


@pytest.mark.parametrize(("file", "case"), _parameters())
async def test_case(
    file: CaseFile, case: Any, record_property: Callable[[str, object], None], kept_processes: KillableProcesses
) -> None:
    record_property(CASE_FILE, file.label)
    if isinstance(case, BadLine):
        pytest.fail(case.problem, pytrace=False)
    problem = await _problem(file, case, kept_processes)
    if problem and case.loose:
        pytest.xfail(f"{case.loose}: {problem}")
    if problem:
        pytest.fail(f"{case.id}: {case.note}\n{problem}", pytrace=False)


async def _problem(file: CaseFile, case: Any, processes: KillableProcesses) -> str | None:
    try:
        await _check(file, case, processes)
    except Mismatch as mismatch:
        return str(mismatch)
    return None


async def _check(file: CaseFile, case: Any, processes: KillableProcesses) -> None:
    suite = find_suite(file.name) if file.is_core else None
    worker = None if file.is_core else find_worker(file.name)
    if suite is not None:
        await check_core(suite, case)
    elif worker is not None:
        await check_resources(worker, case, file.path.parent, processes=processes)
    else:
        kind = "suite" if file.is_core else "resources worker"
        pytest.fail(f"{file.path}: there is no {kind} named {file.name}", pytrace=False)


HARDENED = frozenset(
    {
        "arena_judge-s06",  # of two labels the last one counts, which the judge stands by
        "arc_agi-s03",  # a box that the reply takes back counts
        "bird_sql-s08",  # a comment is no part of the query that is reported
        "gpqa_diamond-s04",  # the row asks for a last line `Answer: LETTER`, and a box before it counts
        "gpqa_diamond-s05",  # the bold letter of the answer line is none
        "instruction_following-s07",
        "over_refusal_detection-s05",
        "string_match-s07",  # a number with commas between its thousands is only close to the same one without
    }
)
"""Cases whose verdict is another with the worker's defaults, since they rest on what `hardened` mends."""


def _recorded() -> list[Any]:
    files = read_folder(OWN_CASES)
    return [
        pytest.param(file, case, id=case.id)
        for file in files
        for case in file.cases
        if isinstance(case, ResourcesCase) and case.source != OURS and _can_be_hardened(file)
    ]


def _can_be_hardened(file: CaseFile) -> bool:
    worker = find_worker(file.name)
    return worker is not None and "hardened" in worker.Options.model_fields


@pytest.mark.parametrize(("file", "case"), _recorded())
async def test_a_recorded_case_succeeds_with_the_defaults_unless_it_is_a_hack(
    file: CaseFile, case: Any, kept_processes: KillableProcesses
) -> None:
    worker = find_worker(file.name)
    assert worker is not None
    try:
        await check_resources(worker, case, file.path.parent, as_recorded=False, processes=kept_processes)
    except Mismatch as mismatch:
        if case.id not in HARDENED:
            pytest.fail(f"{case.id}: {case.note}\n{mismatch}", pytrace=False)
    else:
        assert case.id not in HARDENED
