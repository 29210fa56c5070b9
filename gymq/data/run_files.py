"""The files of a run, and the lines that are written to them."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import msgspec

from gymq.data.jsonl import JsonlFile, atomic_write, parse_object, private, truncate_torn_line
from gymq.data.rows import (
    ATTEMPT_INDEX,
    FAILURE_CLASS,
    FAILURE_CURABLE,
    FAILURE_MESSAGE,
    FAILURE_SEQUENCE,
    FAILURE_STAGE,
    FAILURE_TERMINAL,
    POLICY_VERSION,
    ROLLOUT_INDEX,
    TASK_INDEX,
    MaterialisedRow,
    RowError,
    attempt_index,
    read_rows,
    with_result,
)
from gymq.data.run_changes import RecordedInstance
from gymq.defaults import TokenForm
from gymq.errors import UsageError
from gymq.protocol.messages import Failure, FailureClass, Stage, Unresolved, VerifiedRollout
from gymq.protocol.token_forms import in_form
from gymq.protocol.tokens import to_json

BUFFER_BYTES = 1 << 20  # of lines that are not yet passed to the operating system
COMPRESSED = (".gz", ".zst")
MANIFEST = "_run.json"


class Manifest(msgspec.Struct):
    """The content of `<stem>_run.json`: the run that the other files belong to."""

    run: str
    input: str  # path, for messages
    input_digest: str
    settings: dict[str, Any]  # other settings that affect the rows; compared on resume
    config_digest: str
    num_rollouts: int
    config: dict[str, RecordedInstance] = {}  # the workers as configured, without secrets; compared on resume
    extended_to: int | None = None  # if the run was extended: the most rollouts of a task
    num_refused: int = 0  # rows of the input that cannot be used; they are in the failures file
    score_with: list[str] = []  # options that name the verifiers to `gymq score`
    older_rewards: dict[str, int] = {}  # by agent: results that an earlier version of its verifier's file gave
    scored: list[str] = []  # digests of the verifiers' files with which `gymq score` verified all results last


class ReportFiles(NamedTuple):
    """The files of the report of a run."""

    reward_profiling: Path  # per task, JSONL
    agent_metrics: Path  # per agent, JSON
    statistics: Path  # per agent and of all together, with pass@k and intervals, JSON

    @classmethod
    def at(cls, stem: Path) -> Self:
        """Return the files whose names begin with a stem."""
        endings = ("_reward_profiling.jsonl", "_agent_metrics.json", "_statistics.json")
        return cls(*(stem.with_name(f"{stem.name}{ending}") for ending in endings))

    @classmethod
    def beside(cls, results: Path) -> Self:
        """Return the files in the folder of an output file, which may be compressed."""
        plain = results.with_suffix("") if results.suffix in COMPRESSED else results
        return cls.at(plain.with_suffix(""))


class RunFiles:
    """Names of a run's files, all derived from its output file."""

    def __init__(self, output: Path) -> None:
        """Derive them.

        Raises:
            UsageError: the output has no name, as `.` and `/`.
        """
        if not output.name:
            raise UsageError(f"the output {output} is a folder: name a file in it")
        has_ending = output.suffix == ".jsonl"
        stem = output.with_suffix("") if has_ending else output
        self.output = output
        self._stem = stem
        self._namesake = stem if has_ending else stem.with_name(f"{stem.name}.jsonl")  # its other files are the same
        self.materialised = stem.with_name(f"{stem.name}_materialized_inputs.jsonl")
        self.failures = stem.with_name(f"{stem.name}_failures.jsonl")
        self.manifest = stem.with_name(f"{stem.name}{MANIFEST}")
        self.removed = stem.with_name(f"{stem.name}_removed.jsonl")  # rollouts of rows that the input had once
        self.report = ReportFiles.at(stem)

    def all(self) -> list[Path]:
        return [self.output, self.materialised, self.failures, self.removed, self.manifest, *self.report]

    def staged(self, run: str) -> dict[Path, Path]:
        """Return by its path what takes the place of each file of rows and rollouts once the manifest names a run."""
        files = (self.output, self.materialised, self.failures, self.removed)
        return {path: path.with_name(f".{path.name}.{run}.new") for path in files}

    def settle(self) -> None:
        """Put the files that are staged for the run of the manifest in their places, and delete those of other runs."""
        for path, new in self.staged(self.read_run() or "").items():
            if new.exists():
                new.replace(path)
            for left in path.parent.glob(f".{escape(path.name)}.*.new"):
                left.unlink()

    def read_manifest(self) -> Manifest | None:
        """Return the manifest; None before the first start.

        Raises:
            UsageError: the file exists but cannot be read.
        """
        try:
            return msgspec.json.decode(self.manifest.read_bytes(), type=Manifest)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, OSError) as error:
            raise UsageError(f"{self.manifest}: not the manifest of a run: {error}") from None

    def read_run(self) -> str | None:
        """Return the name of the run that the files belong to; None before the first start."""
        manifest = self.read_manifest()
        return None if manifest is None else manifest.run

    def shared(self) -> Path | None:
        """Return a file that belongs to a run with another output."""
        if self.manifest.exists() and self._namesake.is_file() and not self.output.exists():
            return self.manifest
        own = set(self.all())
        for manifest in self.manifest.parent.glob(f"*{MANIFEST}"):
            if manifest != self.manifest:
                other = RunFiles(manifest.with_name(manifest.name.removesuffix(MANIFEST) + ".jsonl"))
                if common := own.intersection(other.all()):
                    return common.pop()
        return None

    def rows(self) -> Iterator[MaterialisedRow]:
        """Yield the materialised rows of an earlier start.

        Raises:
            UsageError: a line is no row, as in a file that was cut.
        """
        try:
            yield from read_rows(JsonlFile(self.materialised))
        except RowError as error:
            again = "delete this file, and the same command makes it again from the input"
            raise UsageError(f"{error}; {again}") from None

    def write_manifest(self, manifest: Manifest) -> None:
        with atomic_write(self.manifest) as file:
            file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock these files against other collections on this machine while the block runs; first settle them.

        Raises:
            UsageError: another collection has locked them, or their folder cannot be used.
        """
        path = self._stem.with_name(f".{self._stem.name}.jsonl.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.open("wb")
        except OSError as error:
            raise UsageError(f"{self.output} cannot be written: {error.strerror}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_ours = path.exists() and os.fstat(lock.fileno()).st_ino == path.stat().st_ino
            except BlockingIOError:
                is_ours = False
            if not is_ours:
                raise UsageError(f"another collection is writing {self.output}")
            try:
                self.settle()
                yield
            finally:
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the run's files."""
        for path in self.all():
            path.unlink(missing_ok=True)


class Appender:
    """Appends whole lines to a file that a killed process may have left torn.

    Its methods raise UsageError where they cannot be written, for example because the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            truncate_torn_line(path)
        self._file: IO[bytes] = os.fdopen(
            private(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab", BUFFER_BYTES
        )

    def write(self, line: bytes) -> None:
        """Append a line."""
        with self._named_errors():
            self._file.write(line + b"\n")

    def flush(self) -> None:
        """Flush the lines to the operating system, so that they survive the end of this process."""
        with self._named_errors():
            self._file.flush()

    def close(self) -> None:
        """Write the remaining lines to disk and close the file. The next start writes again those that cannot be."""
        with self._named_errors(), self._file:
            self._file.flush()
            os.fsync(self._file.fileno())

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(f"{self._path} cannot be written: {error.strerror}") from None


def output_row(outcome: VerifiedRollout, token_ids: TokenForm = "full") -> bytes:
    """Return the line of a finished rollout: the row, the response, the reward and the verifier's fields."""
    fields = with_result(parse_object(outcome.row), in_form(outcome.response, token_ids), outcome)
    return to_json(_indexed(fields, outcome))


def failure_row(outcome: Failure | Unresolved, sequence: int, token_ids: TokenForm = "full") -> bytes:
    """Return the line of a rollout without a verdict, which has no reward.

    Args:
        sequence: stream sequence of the outcome, by which a resumed collection recognises the line.
    """
    fields: dict[str, Any] = dict(parse_object(outcome.row))
    if isinstance(outcome, Unresolved):
        fields["response"] = in_form(outcome.response, token_ids)
    fields[FAILURE_CLASS] = outcome.failure_class
    fields[FAILURE_STAGE] = outcome.stage
    fields[FAILURE_MESSAGE] = outcome.message
    fields[FAILURE_TERMINAL] = not (outcome.retryable or outcome.curable)
    if outcome.curable:
        fields[FAILURE_CURABLE] = True
    fields[FAILURE_SEQUENCE] = sequence
    return to_json(_indexed(fields, outcome))


def refused_row(message: str) -> bytes:
    """Return the line of an input row that cannot be used: a final failure without a rollout."""
    fields = {
        FAILURE_CLASS: FailureClass.INVALID_TASK,
        FAILURE_STAGE: Stage.QUEUE,
        FAILURE_MESSAGE: message,
        FAILURE_TERMINAL: True,
    }
    return to_json(fields)


def _indexed(fields: dict[str, Any], outcome: VerifiedRollout | Failure | Unresolved) -> dict[str, Any]:
    fields[TASK_INDEX] = outcome.task_index
    fields[ROLLOUT_INDEX] = outcome.rollout_index
    fields.setdefault("agent_ref", {"name": outcome.agent})
    if outcome.attempt:
        fields[ATTEMPT_INDEX] = attempt_index(outcome.row, outcome.attempt)
    if outcome.policy_versions:
        versions = outcome.policy_versions
        fields[POLICY_VERSION] = versions[0] if len(versions) == 1 else versions
    return fields


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
