"""Before a collection: its rows are made and a manifest tells what they were made of, or both are found from before."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gymq import streams, subjects
from gymq.bus import Bus
from gymq.datasets import Dataset, DatasetError
from gymq.discovery import is_running
from gymq.jetstream import JetStream
from gymq.jsonl import JsonlFile, written_whole
from gymq.materialise import MAX_PROBLEMS, Materialisation, MaterialiseOptions, report
from gymq.messages import Run, encode
from gymq.rows import RowError, read_rows
from gymq.run_files import Manifest, RunFiles, refused_row

DEFAULT_WINDOW = 1024  # rollouts submitted and not finished
MAX_TIMEOUT_S = 30 * 24 * 3600  # what a task's time limit can be


class CollectError(Exception):
    """A collection that cannot start or go on; one sentence."""


@dataclass(frozen=True)
class CollectOptions:
    """What to collect."""

    input: Path
    output: Path
    materialise: MaterialiseOptions
    window: int = DEFAULT_WINDOW
    rollout_timeout_s: float = 3600.0
    config_digest: str = ""
    models: list[str] = field(default_factory=list)
    overwrite: bool = False
    strict_rows: bool = False  # a row that cannot be used refuses the whole input
    urgent: bool = False
    max_staleness: int | None = None  # updates of the policy while a rollout is made


class RunSetup:
    """Gives the manifest of a collection. What is there from before stays as it is unless all is well."""

    def __init__(self, bus: Bus, files: RunFiles, options: CollectOptions) -> None:
        self.warnings: list[str] = []
        self._bus = bus
        self._js = JetStream(bus)
        self._files = files
        self._options = options

    async def manifest(self) -> Manifest:
        """That of the files found, or a new one with freshly materialised rows.

        Raises:
            CollectError, RowError, JsonlError, RunFileError: bad input; nothing was changed.
            BusError
        """
        try:
            return await self._manifest()
        except OSError as error:
            raise CollectError(f"{error.filename or self._files.output}: {error.strerror}") from None

    async def _manifest(self) -> Manifest:
        options, files = self._options, self._files
        if not 0 < options.rollout_timeout_s <= MAX_TIMEOUT_S:
            raise CollectError(
                f"a rollout may take between 0 and {MAX_TIMEOUT_S} seconds, not {options.rollout_timeout_s:g}"
            )
        try:
            self._dataset = Dataset(options.input)
        except DatasetError as error:
            raise CollectError(str(error)) from None
        if options.output.resolve() in [file.resolve() for file in self._dataset.files]:
            raise CollectError(f"input and output are the same file: {options.output}")
        if options.input.is_dir() and options.output.resolve().is_relative_to(options.input.resolve()):
            raise CollectError(f"the output {options.output} lies in the input folder: choose another place")
        if options.output.is_dir():
            raise CollectError(f"the output {options.output} is a folder: name a file in it")
        found = files.read_manifest()
        if found is None and files.output.exists() and not options.overwrite:
            raise CollectError(
                f"{files.output} exists without {files.manifest.name}, so it cannot be gone on with: "
                "choose another output or say --overwrite"
            )
        if found is None or options.overwrite:
            return await self._begin(found)
        self._check_same(found)
        return await self._go_on(found)

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = msgspec.to_builtins(self._options.materialise.model_dump(mode="json"))
        return settings

    def _check_same(self, found: Manifest) -> None:
        options = self._options
        differs = [
            what
            for what, same in (
                (f"the input (it was {found.input})", found.input_digest == self._dataset.digest()),
                ("num_repeats, limit or other settings of the rows", found.settings == self._settings()),
                ("the configuration of the workers", found.config_digest == options.config_digest),
            )
            if not same
        ]
        if differs:
            raise CollectError(
                f"{self._files.output} holds run {found.run}, but {' and '.join(differs)} changed since: "
                "choose another output, or say --overwrite to start anew"
            )

    async def _go_on(self, found: Manifest) -> Manifest:
        rows = self._files.materialised
        if rows.exists():
            agents = await asyncio.to_thread(_agents_of, rows)
        else:
            # The same input and settings give the same rows. Those that are refused are among the failures already.
            agents = (await asyncio.to_thread(self._materialise, rows, None)).agents
        await self._check_agents(agents)
        return found

    async def _begin(self, replaced: Manifest | None) -> Manifest:
        options, files = self._options, self._files
        rows = files.materialised.with_name(f".{files.materialised.name}.new")
        refused = files.failures.with_name(f".{files.failures.name}.new")
        try:
            made = await asyncio.to_thread(self._materialise, rows, refused)
            if not made.num_rollouts and made.problems:
                raise RowError(report(made.problems))
            if not made.num_rollouts:
                raise CollectError(f"{options.input} has no rows")
            await self._check_agents(made.agents)
            if replaced is not None:
                await streams.delete_run(self._js, replaced.run)
            if options.overwrite:
                files.remove()
            rows.replace(files.materialised)
            if made.num_refused:
                refused.replace(files.failures)
        finally:
            rows.unlink(missing_ok=True)
            refused.unlink(missing_ok=True)
        manifest = Manifest(
            run=f"{_token_of(files.output)}-{secrets.token_hex(4)}",
            input=str(options.input),
            input_digest=self._dataset.digest(),
            settings=self._settings(),
            config_digest=options.config_digest,
            num_rollouts=made.num_rollouts,
            num_refused=made.num_refused,
        )
        record = Run(
            run=manifest.run,
            created_at=time.time(),
            fingerprint=f"{manifest.input_digest}/{manifest.config_digest}",
            models=options.models,
            num_rollouts=made.num_rollouts,
        )
        await self._js.store_surely(subjects.run_record(manifest.run), encode(record), {}, patience_s=30.0)
        files.write_manifest(manifest)
        return manifest

    def _materialise(self, path: Path, failures: Path | None) -> _Made:
        """Write the rows of the run, and the failures of those that cannot be used.

        Raises:
            RowError: a row cannot be used, and the options are strict about it.
        """
        made = _Made()
        with ExitStack() as stack:
            rows = stack.enter_context(written_whole(path))
            refused = None if failures is None else stack.enter_context(written_whole(failures))
            materialisation = stack.enter_context(Materialisation(self._options.materialise))

            def refuse(line_number: int, problem: str) -> None:
                message = f"{self._dataset.name}:{line_number}: {problem}"
                if self._options.strict_rows:
                    raise RowError(message)
                made.num_refused += 1
                if len(made.problems) < MAX_PROBLEMS:
                    made.problems.append(message)
                if refused is not None:
                    refused.write(refused_row(message) + b"\n")

            refused_line = 0
            for row in materialisation.rows(self._dataset, None if self._options.strict_rows else refuse):
                if row.line_number == refused_line:
                    continue
                if row.agent not in made.agents:
                    try:
                        subjects.token(row.agent, "agent")
                    except subjects.BadToken as error:
                        refuse(row.line_number, str(error))
                        refused_line = row.line_number
                        continue
                    made.agents[row.agent] = f"{self._dataset.name}:{row.line_number}"
                made.num_rollouts += 1
                rows.write(row.json + b"\n")
            self.warnings += materialisation.warnings
        return made

    async def _check_agents(self, agents: dict[str, str]) -> None:
        for agent, where in sorted(agents.items()):
            if not await is_running(self._bus, agent, "agents"):
                raise CollectError(f"{where}: no agent named {agent!r} is running; `gymq status` lists those that are")


@dataclass
class _Made:
    """What a pass over the input gave."""

    num_rollouts: int = 0
    num_refused: int = 0  # rows that cannot be used
    problems: list[str] = field(default_factory=list)  # of the first of them
    agents: dict[str, str] = field(default_factory=dict)  # file and line that name each first


def _agents_of(rows: Path) -> dict[str, str]:
    """Return the agents of materialised rows, with file and line that name each first."""
    agents: dict[str, str] = {}
    for row in read_rows(JsonlFile(rows)):
        agents.setdefault(row.agent, f"{rows}:{row.line_number}")
    return agents


def _token_of(output: Path) -> str:
    """A run's name that tells which file it belongs to."""
    name = output.name.removesuffix(".jsonl")
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)[:40].strip("-") or "run"
