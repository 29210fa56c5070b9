"""Read case files: which files a folder holds, and what each of their lines asks for.

A line that is not a well-formed case is kept as a `BadLine`, so that the run shows it as a failing test of its own.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

CASES_VARIABLE = "GYMQ_CASES"
"""Environment variable that names the folder with the case files."""

CASE_FILE = "case_file"
"""Name of the test property that holds the label of a case's file."""

OWN_CASES = Path(__file__).parent.parent / "cases"

CORE_SUITES = (
    "agent_loop",
    "chat_to_responses",
    "config",
    "model_exchange",
    "preprocess",
    "profile",
    "responses_to_chat",
    "trajectory",
)

VERIFY_ERRORS = ("invalid_request", "judge_failed", "component_failed")
NOT_FROM_THE_VERDICT = ("rewards", "error", "seed", "judge_calls", "verdicts", "judge_prompts", "component_calls")
"""Keys of `expect` in a resources case that are no fields of the verify answer."""


_JUDGE_REPLY_FORMS = ({"output"}, {"status", "body"}, {"raise"})


class MalformedCaseError(ValueError):
    """A case does not have the documented form."""


class ExpectedError(msgspec.Struct, forbid_unknown_fields=True):
    """The refusal that a core case expects; `kind` and `peer_exception` are information."""

    kind: str
    mention: list[str] = []
    status: int | None = None
    peer_exception: str | None = None


class CoreCase(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a core suite's file."""

    id: str
    note: str
    input: dict[str, Any]
    expect: dict[str, Any]
    march: Any = None
    loose: str | None = None

    @property
    def expected_error(self) -> ExpectedError | None:
        """The refusal expected instead of a result, if one is."""
        return msgspec.convert(self.expect["error"], ExpectedError) if "error" in self.expect else None


class ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    """A tool call made between seeding and verification, and what it must answer."""

    name: str
    arguments: Any
    result: Any
    session: str = "main"


class ResourcesCase(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a resources worker's file."""

    id: str
    server: str
    config: dict[str, Any]
    row: dict[str, Any]
    response: dict[str, Any] | None
    expect: dict[str, Any]
    source: str
    note: str
    judge_replies: list[Any] = []
    component_replies: list[dict[str, Any]] = []
    tool_calls: list[ToolCall] = []
    seed: bool = True
    responses: list[dict[str, Any]] = []
    loose: str | None = None

    @property
    def expected_fields(self) -> dict[str, Any]:
        """The fields of the verify answer that the case names."""
        return {key: value for key, value in self.expect.items() if key not in NOT_FROM_THE_VERDICT}


@dataclass(frozen=True)
class BadLine:
    """A line, or a whole file or folder, that cannot be run; `id` is where it is."""

    id: str
    problem: str


Case = CoreCase | ResourcesCase


@dataclass(frozen=True)
class CaseFile:
    """One case file: a core suite's or a resources worker's."""

    path: Path
    name: str
    """Name of the suite or worker, without the `core_` prefix that a core suite's file may have."""
    is_core: bool
    cases: tuple[Case | BadLine, ...]

    @property
    def label(self) -> str:
        """The file's name without its ending."""
        return self.path.stem


def cases_folder() -> Path:
    """The folder named by GYMQ_CASES, or the repository's own cases."""
    return Path(os.environ.get(CASES_VARIABLE) or OWN_CASES).resolve()


def read_folder(folder: Path) -> list[CaseFile]:
    """All case files of a folder, sorted by name. Ids that occur twice are marked as bad lines.

    Raises:
        MalformedCaseError: there is no such folder, or it has no case file.
    """
    if not folder.is_dir():
        raise MalformedCaseError(f"{folder} is not a folder: set {CASES_VARIABLE} to a folder with *.jsonl case files")
    files = [read_file(path) for path in sorted(folder.glob("*.jsonl"))]
    if not files:
        raise MalformedCaseError(f"{folder} has no *.jsonl case file")
    return list(_mark_repeated_ids(files))


def read_file(path: Path) -> CaseFile:
    """Read one case file; each line becomes a case or a `BadLine`."""
    name = path.stem
    is_core = name.startswith("core_") or name in CORE_SUITES
    name = name.removeprefix("core_") if is_core else name
    return CaseFile(path, name, is_core, tuple(_read_lines(path, name, is_core)))


def _read_lines(path: Path, name: str, is_core: bool) -> Iterator[Case | BadLine]:
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        yield BadLine(path.name, f"{path}: the file is not UTF-8: {error}")
        return
    lines = text.removesuffix("\n").split("\n") if text else []
    if not lines:
        yield BadLine(path.name, f"{path}: the file is empty, a case file has one JSON object per line")
    for number, line in enumerate(lines, start=1):
        try:
            yield _parse_core(line) if is_core else _parse_resources(line, name)
        except (MalformedCaseError, msgspec.ValidationError, json.JSONDecodeError) as error:
            yield BadLine(f"{path.name}:{number}", f"{path}:{number}: malformed case: {error}")


def _parse_core(line: str) -> CoreCase:
    case = msgspec.convert(json.loads(line), CoreCase)
    if not case.expect:
        raise MalformedCaseError("`expect` is empty, nothing could fail")
    if case.expected_error and len(case.expect) > 1:
        raise MalformedCaseError("`expect` holds `error` beside a result; a case expects one of them")
    return case


def _parse_resources(line: str, name: str) -> ResourcesCase:
    case = msgspec.convert(json.loads(line), ResourcesCase)
    if case.server != name:
        raise MalformedCaseError(f"`server` is {case.server!r}, but the file is {name}.jsonl")
    if case.response is not None and case.responses:
        raise MalformedCaseError("`response` and `responses` exclude each other")
    for position, element in enumerate(case.judge_replies):
        _check_judge_reply(element, f"`judge_replies[{position}]`")
    for position, element in enumerate(case.component_replies):
        if not isinstance(element.get("component"), str):
            raise MalformedCaseError(f"`component_replies[{position}]` needs a `component`")
    _check_expectation(case)
    return case


def _check_judge_reply(element: Any, what: str) -> None:
    if isinstance(element, dict) and "when" in element:
        if element.keys() != {"when", "reply"} or not isinstance(element["when"], dict) or not element["when"]:
            raise MalformedCaseError(f"{what} must have `when` with conditions, and `reply`")
        if not _is_list_of_texts(element["when"].get("contains", [""])):
            raise MalformedCaseError(f"{what}.when.contains must be a list of texts")
        element = element["reply"]
    if not isinstance(element, str) and not (isinstance(element, dict) and set(element) in _JUDGE_REPLY_FORMS):
        raise MalformedCaseError(
            f"{what} is neither a text nor an object with `output`, `status` and `body`, or `raise`"
        )


def _check_expectation(case: ResourcesCase) -> None:
    expect, fields = case.expect, case.expected_fields
    verified = case.response is not None or case.responses
    if not expect and not case.tool_calls:
        raise MalformedCaseError("neither `expect` nor `tool_calls` expects anything, nothing could fail")
    if "error" in expect and expect["error"] not in VERIFY_ERRORS:
        raise MalformedCaseError(f"`expect.error` is {expect['error']!r}, known are {', '.join(VERIFY_ERRORS)}")
    if expect.get("seed", "invalid_request") != "invalid_request":
        raise MalformedCaseError(f"`expect.seed` is {expect['seed']!r}, known is invalid_request")
    if "error" in expect and (fields or "rewards" in expect):
        raise MalformedCaseError("`expect` holds `error` beside a verdict; a case expects one of them")
    if not verified and (fields or {"error", "rewards", "verdicts"} & expect.keys()):
        raise MalformedCaseError("`expect` describes a verification, but there is no response to verify")
    if case.responses and (fields or not {"error", "rewards"} & expect.keys()):
        raise MalformedCaseError("a case with `responses` expects `rewards` or an `error`")
    if "rewards" in expect and len(expect["rewards"]) != len(case.responses):
        raise MalformedCaseError("`expect.rewards` needs one reward for each of `responses`")
    for key, value in fields.items():
        if key.endswith("~") and not _is_list_of_texts(value):
            raise MalformedCaseError(f"`expect.{key}` must be a list of texts")


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


def _mark_repeated_ids(files: Iterable[CaseFile]) -> Iterator[CaseFile]:
    first_seen: dict[str, str] = {}
    for file in files:
        cases: list[Case | BadLine] = []
        for number, case in enumerate(file.cases, start=1):
            place = f"{file.path.name}:{number}"
            if first_seen.setdefault(case.id, place) != place:
                problem = f"{file.path}:{number}: the id {case.id!r} is already used in {first_seen[case.id]}"
                cases.append(BadLine(place, problem))
            else:
                cases.append(case)
        yield CaseFile(file.path, file.name, file.is_core, tuple(cases))
