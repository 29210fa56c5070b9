"""Rollouts of a file in a store, so that the viewer shows them: those of gymq, and those of other programs."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.config import record_options
from gymq.data.jsonl import JsonlError, JsonlFile, numbered_lines, parse_object
from gymq.data.rows import (
    AGENT_REF,
    ATTEMPT_INDEX,
    FAILURE_CLASS,
    FAILURE_CURABLE,
    FAILURE_MESSAGE,
    FAILURE_STAGE,
    FAILURE_TERMINAL,
    MAX_INDEX,
    POLICY_VERSION,
    RESULT_FIELDS,
    ROLLOUT_INDEX,
    TASK_INDEX,
    RowError,
)
from gymq.data.run_configuration import encode_configuration
from gymq.data.run_files import Manifest, RunFiles
from gymq.errors import UsageError
from gymq.ext.rollout_files.files import rollout_lines
from gymq.ext.rollout_files.names import name_of
from gymq.protocol import subjects, token_forms
from gymq.protocol.codec import encode
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import (
    JUDGE_FIELDS,
    BadMessage,
    Failure,
    FailureClass,
    Outcome,
    Run,
    Stage,
    Unresolved,
    VerifiedRollout,
)
from gymq.protocol.tokens import TOKEN_FIELDS

_RESPONSE, _REWARD = "response", "reward"
_OF_RESULT = RESULT_FIELDS | {ATTEMPT_INDEX, POLICY_VERSION}

At = tuple[int, int]  # task index, rollout index


@dataclass
class Imported:
    """The result of an import.

    Attributes:
        problems: a sentence for each of the first lines that are not rollouts, with file and line.
    """

    run: str
    num_rollouts: int = 0
    problems: list[str] = field(default_factory=list)
    num_problems: int = 0

    def note(self, problem: str) -> None:
        """Count a line that is left out."""
        self.num_problems += 1
        if self.num_problems <= 5:
            self.problems.append(problem)


async def import_rollouts(bus: Bus, file: Path, taken: Collection[str] = ()) -> Imported:
    """Store the rollouts of a file as a run, with the failures that a collection wrote to a file beside it.

    Lines without indices belong to one task if their rows are the same.

    Args:
        taken: names of runs that the store has already.
    """
    files = RunFiles(file)
    manifest = files.read_manifest() if file == files.output else None
    found = Imported(_free(manifest.run if manifest else name_of(file.name.partition(".")[0]), taken))
    sources = [file, *([files.failures] if manifest and files.failures.is_file() else [])]
    rows = _row_fields(files.materialised) if manifest else {}
    counts = Counter(at for _, _, at in _located(sources, Imported("")))
    tasks = Counter(task for task, _ in counts)
    store = OutcomeStore(bus)
    room = asyncio.Semaphore(64)
    async with asyncio.TaskGroup() as group:
        for where, members, at in _located(sources, found):
            try:
                outcome = _outcome(members, found.run, at, tasks[at[0]], rows.get(at))
            except RowError as error:
                found.note(f"{where}: {error}; it is skipped")
                continue
            await room.acquire()
            group.create_task(_store(store, outcome, where, found)).add_done_callback(lambda _: room.release())
    if not found.num_rollouts:
        raise UsageError(found.problems[0] if found.problems else f"{file}: no rollouts in it")
    if found.num_problems > len(found.problems):
        found.problems.append(f"{found.num_problems - len(found.problems):,} more lines are skipped")
    await bus.js.store(subjects.RUN.of(found.run), encode(_record(found, file, manifest)))
    return found


def _record(found: Imported, file: Path, manifest: Manifest | None) -> Run:
    configuration = b""
    if manifest is not None:
        given = {name: value for name, value in manifest.settings.items() if value is not None}
        options = record_options({"input": manifest.input, "output": str(file)} | given)
        configuration = encode_configuration(options, manifest.config)
    return Run(
        run=found.run,
        created_at=0.0,  # the file does not say
        num_rollouts=found.num_rollouts,
        configuration=configuration,
    )


async def _store(store: OutcomeStore, outcome: Outcome, where: str, found: Imported) -> None:
    try:
        is_new = await store.put(outcome, replaces=None, patience_s=60.0)
    except BadMessage as error:
        found.note(f"{where}: {error}; it is skipped")
        return
    if is_new:
        found.num_rollouts += 1
    elif isinstance(outcome, VerifiedRollout):  # a failure may have been retried since
        at = f"task {outcome.task_index} rollout {outcome.rollout_index}"
        found.note(f"{where}: {at} already exists; it is skipped")


def _located(sources: list[Path], found: Imported) -> Iterator[tuple[str, dict[str, msgspec.Raw], At]]:
    """Yield the lines that are JSON objects: where each is, its fields and its indices.

    A line that names none is numbered by its row and by how often this row came before.
    """
    tasks: dict[bytes, int] = {}
    repeats: Counter[int] = Counter()
    for path in sources:
        for _, where, text in numbered_lines(rollout_lines(path)):
            try:
                members = parse_object(text)
                at = _indices(members)
            except (JsonlError, RowError) as error:
                found.note(f"{where}: {error}; it is skipped")
                continue
            if at is None and FAILURE_CLASS in members:
                continue  # a row of the input that could not be used
            if at is None:
                row = hashlib.sha256(_row(members, None)).digest()
                task = tasks.setdefault(row, len(tasks))
                at = task, repeats[task]
                repeats[task] += 1
            yield where, members, at


def _indices(members: dict[str, msgspec.Raw]) -> At | None:
    if TASK_INDEX not in members:
        return None
    given = _value(members, TASK_INDEX), _value(members, ROLLOUT_INDEX) or 0
    if not all(isinstance(index, int) and 0 <= index <= MAX_INDEX for index in given):
        raise RowError(f"{TASK_INDEX} and {ROLLOUT_INDEX} must be integers of at least 0")
    return given


def _outcome(
    members: dict[str, msgspec.Raw], run: str, at: At, num_rollouts: int, fields: frozenset[str] | None
) -> Outcome:
    versions = _value(members, POLICY_VERSION)
    attempt = _value(members, ATTEMPT_INDEX)
    common: dict[str, Any] = {
        "run": run,
        "task_index": at[0],
        "rollout_index": at[1],
        "agent": _agent(members),
        "row": _row(members, fields),
        "num_rollouts": num_rollouts,
        "attempt": attempt if isinstance(attempt, int) and attempt > 0 else 0,
        "policy_versions": [
            str(version) for version in (versions if isinstance(versions, list) else [versions]) if version
        ],
    }
    response, reward = _value(members, _RESPONSE), _value(members, _REWARD)
    if isinstance(response, dict):
        _check_output(response)
        try:
            response = token_forms.with_whole_prompts(response)
        except ValueError as error:
            raise RowError(f"{_RESPONSE}.{error}") from None
    if FAILURE_CLASS in members and reward is None:
        return _failed(members, common, response)
    if not isinstance(reward, int | float) or isinstance(reward, bool):
        raise RowError(f"the line has no number `{_REWARD}` and no `{FAILURE_CLASS}`, so it is not a rollout")
    if not isinstance(response, dict):
        raise RowError(f"the line has no object `{_RESPONSE}`, so it is not a rollout")
    names = [] if fields is None else [name for name in members if name not in _OF_RESULT and name not in fields]
    names += JUDGE_FIELDS & members.keys()
    verdict = {name: _value(members, name) for name in names if name not in (TASK_INDEX, ROLLOUT_INDEX, AGENT_REF)}
    return VerifiedRollout(**common, response=response, reward=float(reward), verdict=verdict)


def _check_output(response: dict[str, Any]) -> None:
    """Check that a response has the form on which all that show one rely.

    Raises:
        RowError: it has another one; the message names the field.
    """
    output = response.get("output")
    if not _are_objects(output):
        raise RowError(f"`{_RESPONSE}.output` must be a list of objects")
    for position, item in enumerate(output):
        for name in ("content", "summary"):
            if not (isinstance(item.get(name), str | None) or _are_objects(item[name])):
                raise RowError(f"`{_RESPONSE}.output[{position}].{name}` must be a text or a list of objects")
        for name in TOKEN_FIELDS:
            if not isinstance(item.get(name), list | None):
                raise RowError(f"`{_RESPONSE}.output[{position}].{name}` must be a list")


def _are_objects(value: Any) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def _failed(members: dict[str, msgspec.Raw], common: dict[str, Any], response: Any) -> Outcome:
    try:
        failure_class = FailureClass(_value(members, FAILURE_CLASS))
        stage = Stage(_value(members, FAILURE_STAGE))
    except ValueError as error:
        raise RowError(str(error)) from None
    failure: dict[str, Any] = {
        "failure_class": failure_class,
        "stage": stage,
        "message": str(_value(members, FAILURE_MESSAGE) or ""),
        "retryable": _value(members, FAILURE_TERMINAL) is False,
        "curable": _value(members, FAILURE_CURABLE) is True,
    }
    if isinstance(response, dict):
        return Unresolved(**common, **failure, response=response)
    return Failure(**common, **failure)


def _agent(members: dict[str, msgspec.Raw]) -> str:
    reference = _value(members, AGENT_REF)
    name = reference.get("name") if isinstance(reference, dict) else None
    return name_of(name if isinstance(name, str) else "")


def _row(members: dict[str, msgspec.Raw], fields: frozenset[str] | None) -> bytes:
    """Return the row that a rollout was made for.

    Args:
        fields: fields of the row; None: everything that is not part of a result belongs to the row.
    """
    kept = {
        name: value for name, value in members.items() if name not in _OF_RESULT and (fields is None or name in fields)
    }
    return msgspec.json.encode(kept)


def _row_fields(materialised: Path) -> dict[At, frozenset[str]]:
    """Return the names of the fields of each row, which distinguish them from the verdict's."""
    if not materialised.is_file():
        return {}
    known: dict[frozenset[str], frozenset[str]] = {}
    found = {}
    for text in JsonlFile(materialised):
        try:
            members = parse_object(text)
            at = _indices(members)
        except (JsonlError, RowError):
            continue
        names = frozenset(members)
        if at is not None:
            found[at] = known.setdefault(names, names)
    return found


def _value(members: dict[str, msgspec.Raw], name: str) -> Any:
    if name not in members:
        return None
    try:
        return msgspec.json.decode(members[name])
    except UNDECODABLE as error:
        raise RowError(f"`{name}`: {error}") from None


def _free(name: str, taken: Collection[str]) -> str:
    number = 1
    free = name
    while free in taken:
        number += 1
        free = f"{name[:60]}-{number}"
    return free
