"""Before a collection: its rows and its manifest are made, or found from an earlier start and extended."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from gymq.bus import Bus, streams
from gymq.bus.discovery import is_running
from gymq.config import record_options
from gymq.data.datasets import Dataset, DatasetError
from gymq.data.disk_index import RowDigests
from gymq.data.hub import HubError
from gymq.data.jsonl import JsonlFile, atomic_write
from gymq.data.materialise import MAX_PROBLEMS, Materialisation, MaterialiseOptions, report
from gymq.data.rows import RowError, read_rows
from gymq.data.run_changes import Change, RecordedInstance, changed_fields, changed_options
from gymq.data.run_configuration import encode_configuration
from gymq.data.run_files import Appender, Manifest, RunFiles, refused_row
from gymq.defaults import DEFAULT_WINDOW, MAX_TIMEOUT_S, TokenForm
from gymq.errors import GymqError
from gymq.failures import InvalidTask
from gymq.protocol import subjects
from gymq.protocol.messages import Run, encode
from gymq.runs.stored_runs import Runs
from gymq.runtime.loading.worker_source import instance_name

MAX_REASONS = 5  # named when a run cannot be resumed
RESIZING = ("num_repeats", "limit", "agent_name")
"""Settings that may change if all rows there are stay as they are."""

MAX_STEM_CHARS = 150  # of a file name that is made here; the other files of the run add to it


class CollectError(GymqError):
    """A collection that cannot start or be resumed; one sentence."""


@dataclass(frozen=True)
class MaxFailures:
    """Limit on the failed rollouts of a run: a number, or a percentage of all."""

    number: float
    is_percent: bool = False

    @classmethod
    def parse(cls, text: str) -> MaxFailures:
        """Read `N` or `P%`.

        Raises:
            ValueError: it is neither.
        """
        is_percent = text.endswith("%")
        try:
            number = float(text[:-1]) if is_percent else int(text)
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf or (is_percent and number > 100):
            raise ValueError(f"{text!r} is neither a number of rollouts nor a share such as 5%")
        return cls(number, is_percent)

    def of(self, total: int) -> float:
        """Return how many of `total` rollouts that is."""
        return total * self.number / 100 if self.is_percent else self.number

    def __str__(self) -> str:
        return f"{self.number:g}%" if self.is_percent else str(self.number)


@dataclass(frozen=True)
class CollectOptions:
    """Input, output and settings of a collection."""

    input: Path
    output: Path
    materialise: MaterialiseOptions
    window: int = DEFAULT_WINDOW
    rollout_timeout_s: float = 3600.0
    config_digest: str = ""
    config: dict[str, RecordedInstance] = field(default_factory=dict)  # the workers, where they are configured here
    models: list[str] = field(default_factory=list)
    overwrite: bool = False
    strict_rows: bool = False  # a row that cannot be used refuses the whole input
    check_row: Callable[[str, bytes], None] | None = None  # raises InvalidTask for a row that its verifier refuses
    max_failures: MaxFailures | None = None  # None: see `gymq.runs.collection.collection.FailureLimit`
    urgent: bool = False
    share: float | None = None  # of the workers, relative to other runs; None: as it is stored, or 1
    max_staleness: int | None = None  # updates of the policy while a rollout is made
    token_ids: TokenForm = "full"  # in the files

    def given(self) -> dict[str, Any]:
        """Return the options that describe the run, without those at their default of None."""
        limits = {
            "concurrency": self.window,
            "timeout_s": self.rollout_timeout_s,
            "max_failures": None if self.max_failures is None else str(self.max_failures),
            "max_staleness": self.max_staleness,
            "priority": self.urgent or None,
            "strict_rows": self.strict_rows or None,
        }
        files = {"input": str(self.input), "output": str(self.output)}
        given = files | _settings(self) | limits
        return {name: value for name, value in given.items() if value is not None}


def default_output(input: Path, config: Sequence[Path], resources: Path | None, model: str | None) -> Path:
    """Return the output of a collection that names none: the same for the same data set, workers and model."""
    workers = [path.resolve().parent.name if path.stem == "config" else path.stem for path in config]
    workers += [] if resources is None else [instance_name(resources)]
    names = [*workers, input.name.partition(".")[0], *([] if model is None else [model])]
    parts = ("".join(letter if letter.isalnum() or letter in "_." else "-" for letter in name) for name in names)
    stem = "-".join(dict.fromkeys(part.strip("-.") for part in parts if part.strip("-.")))
    return Path("runs") / f"{stem[:MAX_STEM_CHARS] or 'run'}.jsonl"


def check_files(options: CollectOptions) -> Dataset:
    """Check what a collection reads and writes, before anything is changed or started.

    Returns:
        The rows to roll out.

    Raises:
        CollectError, RunFileError: something is missing or in the way.
    """
    if not 0 < options.rollout_timeout_s <= MAX_TIMEOUT_S:
        raise CollectError(
            f"a rollout may take between 0 and {MAX_TIMEOUT_S} seconds, not {options.rollout_timeout_s:g}"
        )
    try:
        dataset = Dataset(options.input)
    except (DatasetError, HubError) as error:
        raise CollectError(str(error)) from None
    if options.output.resolve() in [file.resolve() for file in dataset.files]:
        raise CollectError(f"input and output are the same file: {options.output}")
    if options.input.is_dir() and options.output.resolve().is_relative_to(options.input.resolve()):
        raise CollectError(f"the output {options.output} is in the input folder: choose another place")
    if options.output.is_dir():
        raise CollectError(f"the output {options.output} is a folder: name a file in it")
    files = RunFiles(options.output)
    if not options.overwrite and files.read_manifest() is None and files.output.exists():
        raise _refusal(files.output, f"{files.manifest.name} is not beside it")
    return dataset


def check_changes(found: Manifest, options: CollectOptions) -> tuple[list[str], list[Change]]:
    """Compare a run with the current options.

    Returns:
        Sentences about changes that do not change what is asked, and the changes of the number of rollouts.

    Raises:
        CollectError: a setting that determines the rollouts changed.
    """
    before, now = MaterialiseOptions().model_dump(mode="json") | found.settings, _settings(options)
    fixed = [{name: value for name, value in given.items() if name not in RESIZING} for given in (before, now)]
    asked, not_asked = _config_changes(found, options)
    if refused := [*changed_fields(*fixed), *asked]:
        raise _refusal(options.output, *refused)
    resized = [Change(name, before[name], now[name]) for name in RESIZING if before[name] != now[name]]
    return not_asked, resized


def _settings(options: CollectOptions) -> dict[str, Any]:
    settings: dict[str, Any] = msgspec.to_builtins(options.materialise.model_dump(mode="json"))
    return settings | {"limit": settings["limit"] or None}


def _config_changes(found: Manifest, options: CollectOptions) -> tuple[list[Change], list[str]]:
    if found.config and options.config:
        return changed_options(found.config, options.config)
    if found.config_digest == options.config_digest:
        return [], []
    if not options.config_digest:
        reason = "it was started with a configuration of its workers, and none is given now"
    elif not found.config_digest:
        reason = "it was started without a configuration of its workers, and one is given now"
    else:
        reason = "the configuration of its workers changed"
    raise _refusal(options.output, reason)


def check_first_rows(dataset: Dataset, options: CollectOptions) -> None:
    """Check that some of the first rows can be used, before a cluster is started for them.

    Raises:
        CollectError: there are no rows.
        RowError, JsonlError: the first rows cannot be used.
    """
    problems: dict[int, str] = {}
    with Materialisation(options.materialise) as materialisation:
        for row in materialisation.rows(_FirstLines(dataset, MAX_PROBLEMS), problems.__setitem__):
            try:
                if options.check_row is not None and row.line_number not in problems:
                    options.check_row(row.agent, row.json)
            except InvalidTask as error:
                problems[row.line_number] = error.message
            if row.line_number not in problems:
                return
    if problems:
        raise RowError(report([f"{dataset.name}:{number}: {problem}" for number, problem in sorted(problems.items())]))
    raise CollectError(f"{dataset.name} has no rows")


class _FirstLines:
    """The first lines of a data set."""

    def __init__(self, dataset: Dataset, count: int) -> None:
        self.name = dataset.name
        self._dataset = dataset
        self._count = count

    def __iter__(self) -> Iterator[bytes]:
        return islice(self._dataset, self._count)


def _refusal(output: Path, *reasons: Change | str) -> CollectError:
    shown = [str(reason) for reason in reasons[:MAX_REASONS]]
    if len(reasons) > MAX_REASONS:
        shown.append(f"{len(reasons) - MAX_REASONS} more settings changed")
    return CollectError(
        f"{output}: cannot be resumed because {' and '.join(shown)}; "
        "pass --overwrite to start over, or another --output"
    )


class RunSetup:
    """Creates or finds the manifest of a collection; existing files change only if all checks pass.

    Attributes:
        warnings: sentences about input that looks wrong but can be used.
        changes: sentences about rows that cannot be used, and about changes since an earlier start that do not prevent
            the run from being resumed.
        is_resumed: whether the run was begun by an earlier start.
    """

    def __init__(self, bus: Bus, files: RunFiles, options: CollectOptions) -> None:
        self.warnings: list[str] = []
        self.changes: list[str] = []
        self.is_resumed = False
        self._bus = bus
        self._js = bus.js
        self._files = files
        self._options = options

    async def manifest(self) -> Manifest:
        """Return that of the files found, extended if there are more rollouts now, or a new one with its rows.

        Raises:
            CollectError, RowError, JsonlError, RunFileError: bad input; nothing was changed.
            BusError
        """
        try:
            return await self._manifest()
        except OSError as error:
            raise CollectError(f"{error.filename or self._files.output}: {error.strerror}") from None

    async def _manifest(self) -> Manifest:
        options = self._options
        self._dataset = check_files(options)
        found = self._files.read_manifest()
        if found is None or options.overwrite:
            return await self._begin(found)
        self.is_resumed = True
        return await self._resume(found)

    def _refusal(self, *reasons: Change | str) -> CollectError:
        return _refusal(self._files.output, *reasons)

    async def _resume(self, found: Manifest) -> Manifest:
        """Compare a run with the current options, and extend it by the rollouts that are new.

        Raises:
            CollectError: a setting that determines the rollouts changed, or some rollouts are no longer requested.
        """
        options = self._options
        not_asked, resized = check_changes(found, options)
        manifest = msgspec.structs.replace(
            found,
            input=str(options.input),
            input_digest=await asyncio.to_thread(self._dataset.digest),
            settings=_settings(options),
            config=options.config,
            config_digest=options.config_digest,
        )
        is_new_input = manifest.input_digest != found.input_digest
        if is_new_input or resized or not await self._has_rows(found):
            manifest = await self._extend(manifest, resized, is_new_input=is_new_input)
        elif manifest != found:
            self._files.write_manifest(manifest)
        await self._record(manifest)
        self.changes += [*not_asked, *map(str, resized)]
        if manifest.num_rollouts > found.num_rollouts:
            self.changes.append(f"{manifest.num_rollouts - found.num_rollouts:,} rollouts are added")
        return manifest

    async def _has_rows(self, manifest: Manifest) -> bool:
        """Return whether all rows of the run are in its file; their agents run."""
        if not self._files.materialised.exists():
            return False
        num_rows, agents = await asyncio.to_thread(_rows_and_agents, self._files.materialised)
        if num_rows != manifest.num_rollouts:
            return False  # killed while the run was extended
        await self._check_agents(agents)
        return True

    async def _extend(self, manifest: Manifest, resized: Sequence[Change], *, is_new_input: bool) -> Manifest:
        """Make the rows again, check that those there were are among them, and keep both rows and manifest.

        The manifest is written first and decides: rows that are not yet those of the manifest are made by the next
        start, and none of the new ones was submitted before both are there.
        """
        files = self._files
        if not files.materialised.exists() and (is_new_input or resized):
            raise self._refusal(f"{files.materialised.name} with its rows is gone, and what is asked for changed")
        with _replacement(files.materialised) as rows, _replacement(files.failures) as refused:
            with RowDigests() as known:
                made = await asyncio.to_thread(self._make_known, rows, refused, known)
                missing, grown_to = known.num_missing, known.grown_to
            if made.first_other:
                reasons = [change for change in resized if change.name == "agent_name" or not is_new_input]
                raise self._refusal(*reasons, f"{made.first_other} is another row than before")
            if missing:
                gone = f"{missing:,} of its rollouts have no row in {self._dataset.name} any more"
                raise self._refusal(*([str(change) for change in resized if _is_smaller(change)] or [gone]))
            await self._check_agents(made.agents)
            await asyncio.to_thread(_append_missing, files.failures, refused)
            manifest = msgspec.structs.replace(
                manifest,
                num_rollouts=made.num_rollouts,
                num_refused=made.num_refused,
                extended_to=max(manifest.extended_to or 0, grown_to) or None,
            )
            files.write_manifest(manifest)
            rows.replace(files.materialised)
        return manifest

    def _make_known(self, rows: Path, refused: Path, known: RowDigests) -> _Materialised:
        if self._files.materialised.exists():
            for row in read_rows(JsonlFile(self._files.materialised)):
                known.add(row.task_index, row.rollout_index, row.json)
        return self._materialise(rows, refused, known)

    async def _record(self, manifest: Manifest) -> None:
        """Store what a cluster is to know of the run, unless it knows it."""
        stored = await Runs(self._bus).record(manifest.run)
        record = Run(
            run=manifest.run,
            created_at=time.time() if stored is None else stored.created_at,
            fingerprint=f"{manifest.input_digest}/{manifest.config_digest}",
            models=self._options.models,
            num_rollouts=manifest.num_rollouts,
            extended_to=manifest.extended_to,
            note="" if stored is None else stored.note,
            tags=[] if stored is None else stored.tags,
            configuration=encode_configuration(
                record_options(self._options.given()) | {"token_ids": self._options.token_ids},  # a form, no token
                self._options.config,
            ),
        )
        if record != stored:
            await self._js.publish_with_retry(subjects.run_record(manifest.run), encode(record), {}, patience_s=30.0)

    async def _begin(self, replaced: Manifest | None) -> Manifest:
        options, files = self._options, self._files
        with _replacement(files.materialised) as rows, _replacement(files.failures) as refused:
            made = await asyncio.to_thread(self._materialise, rows, refused)
            if not made.num_rollouts and made.problems:
                raise RowError(report(made.problems))
            if not made.num_rollouts:
                raise CollectError(f"{options.input} has no rows")
            self.changes += made.problems[:MAX_REASONS]
            await self._check_agents(made.agents)
            if replaced is not None:
                await streams.delete_run(self._js, replaced.run)
            if options.overwrite:
                files.remove()
            rows.replace(files.materialised)
            if made.num_refused:
                refused.replace(files.failures)
        manifest = Manifest(
            run=f"{_token_of(files.output)}-{secrets.token_hex(4)}",
            input=str(options.input),
            input_digest=self._dataset.digest(),
            settings=_settings(options),
            config_digest=options.config_digest,
            config=options.config,
            num_rollouts=made.num_rollouts,
            num_refused=made.num_refused,
        )
        await self._record(manifest)
        files.write_manifest(manifest)
        return manifest

    def _materialise(self, path: Path, failures: Path, known: RowDigests | None = None) -> _Materialised:
        """Write the rows of the run, and the failures of those that cannot be used.

        Args:
            known: the rows of an earlier start. The pass ends at the first row that is another one than there.

        Raises:
            RowError: a row cannot be used, and the options are strict about it.
        """
        made = _Materialised()
        with ExitStack() as stack:
            rows = stack.enter_context(atomic_write(path))
            refused = stack.enter_context(atomic_write(failures))
            materialisation = stack.enter_context(Materialisation(self._options.materialise))

            def refuse(line_number: int, problem: str) -> None:
                message = f"{self._dataset.name}:{line_number}: {problem}"
                if self._options.strict_rows:
                    raise RowError(message)
                made.num_refused += 1
                if len(made.problems) < MAX_PROBLEMS:
                    made.problems.append(message)
                refused.write(refused_row(message) + b"\n")

            refused_line = checked_line = 0
            check_row = self._options.check_row
            for row in materialisation.rows(self._dataset, None if self._options.strict_rows else refuse):
                if row.line_number == refused_line:
                    continue
                if row.agent not in made.agents:
                    try:
                        subjects.instance(row.agent, "agent")
                    except subjects.BadToken as error:
                        refuse(row.line_number, str(error))
                        refused_line = row.line_number
                        continue
                    made.agents[row.agent] = f"{self._dataset.name}:{row.line_number}"
                num_known = 0 if known is None else known.num_missing
                if known is not None and not known.find(row.task_index, row.rollout_index, row.json):
                    made.first_other = f"{self._dataset.name}:{row.line_number}"
                    return made
                is_known = known is not None and known.num_missing < num_known
                if check_row is not None and not is_known and row.line_number != checked_line:
                    checked_line = row.line_number
                    try:
                        check_row(row.agent, row.json)
                    except InvalidTask as error:
                        refuse(row.line_number, error.message)
                        refused_line = row.line_number
                        continue
                made.num_rollouts += 1
                rows.write(row.json + b"\n")
            self.warnings += materialisation.warnings
        return made

    async def _check_agents(self, agents: dict[str, str]) -> None:
        for agent, where in sorted(agents.items()):
            if not await is_running(self._bus, agent, "agents"):
                raise CollectError(f"{where}: no agent named {agent!r} is running; `gymq status` lists those that are")


@dataclass
class _Materialised:
    """The result of a pass over the input."""

    num_rollouts: int = 0
    num_refused: int = 0  # rows that cannot be used
    problems: list[str] = field(default_factory=list)  # of the first of them
    agents: dict[str, str] = field(default_factory=dict)  # file and line that name each first
    first_other: str = ""  # file and line of the first row that is not the one of an earlier start


def _rows_and_agents(rows: Path) -> tuple[int, dict[str, str]]:
    """Return the number of materialised rows and their agents, with file and line that name each first."""
    agents: dict[str, str] = {}
    num_rows = 0
    for row in read_rows(JsonlFile(rows)):
        num_rows += 1
        agents.setdefault(row.agent, f"{rows}:{row.line_number}")
    return num_rows, agents


@contextmanager
def _replacement(path: Path) -> Iterator[Path]:
    """Name a file that may take the place of `path`; it is deleted where it did not."""
    new = path.with_name(f".{path.name}.new")
    try:
        yield new
    finally:
        new.unlink(missing_ok=True)


def _append_missing(path: Path, lines: Path) -> None:
    """Append the lines of a file that another one does not have yet."""
    wanted = dict.fromkeys(line.strip() for line in JsonlFile(lines))
    if wanted and path.exists():
        for line in JsonlFile(path):
            wanted.pop(line.strip(), None)
    if wanted:
        appender = Appender(path)
        for line in wanted:
            appender.write(line)
        appender.close()


def _is_smaller(change: Change) -> bool:
    """Return whether a changed setting asks for fewer rollouts than before, judging by the numbers alone."""
    match change.name, change.before, change.now:
        case "limit", before, now:
            return now is not None and (before is None or now < before)
        case "num_repeats", int(before), int(now):
            return now < before
    return True


def _token_of(output: Path) -> str:
    """Return the part of a run's name that identifies its output file."""
    name = output.name.removesuffix(".jsonl")
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)[:40].strip("-") or "run"
