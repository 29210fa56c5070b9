"""Before a collection: its rows are made and a manifest tells what they were made of, or both are found from before."""

from __future__ import annotations

import asyncio
import secrets
import time
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
from gymq.materialise import Materialisation, MaterialiseOptions
from gymq.messages import Run, encode
from gymq.rows import read_rows
from gymq.run_files import Manifest, RunFiles

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
            agents = await asyncio.to_thread(lambda: {row.agent for row in read_rows(JsonlFile(rows))})
        else:
            # The same input and settings give the same rows.
            _, agents = await asyncio.to_thread(self._materialise, rows)
        await self._check_agents(agents)
        return found

    async def _begin(self, replaced: Manifest | None) -> Manifest:
        options, files = self._options, self._files
        rows = files.materialised.with_name(f".{files.materialised.name}.new")
        try:
            total, agents = await asyncio.to_thread(self._materialise, rows)
            if not total:
                raise CollectError(f"{options.input} has no rows")
            await self._check_agents(agents)
            if replaced is not None:
                await streams.delete_run(self._js, replaced.run)
            if options.overwrite:
                files.remove()
            rows.replace(files.materialised)
        finally:
            rows.unlink(missing_ok=True)
        manifest = Manifest(
            run=f"{_token_of(files.output)}-{secrets.token_hex(4)}",
            input=str(options.input),
            input_digest=self._dataset.digest(),
            settings=self._settings(),
            config_digest=options.config_digest,
            num_rollouts=total,
        )
        record = Run(
            run=manifest.run,
            created_at=time.time(),
            fingerprint=f"{manifest.input_digest}/{manifest.config_digest}",
            models=options.models,
            num_rollouts=total,
        )
        await self._js.store_surely(subjects.run_record(manifest.run), encode(record), {}, patience_s=30.0)
        files.write_manifest(manifest)
        return manifest

    def _materialise(self, path: Path) -> tuple[int, set[str]]:
        """Write the rows of the run; how many there are, and for which agents."""
        agents: set[str] = set()
        total = 0
        with Materialisation(self._options.materialise) as made, written_whole(path) as file:
            for row in made.rows(self._dataset):
                agents.add(row.agent)
                total += 1
                file.write(row.json + b"\n")
            self.warnings += made.warnings
        return total, agents

    async def _check_agents(self, agents: set[str]) -> None:
        for agent in sorted(agents):
            try:
                subjects.token(agent, "agent")
            except subjects.BadToken as error:
                raise CollectError(f"{self._options.input}: {error}") from None
            if not await is_running(self._bus, agent, "agents"):
                raise CollectError(f"no agent named {agent!r} is running, but {self._options.input} asks for it")


def _token_of(output: Path) -> str:
    """A run's name that tells which file it belongs to."""
    name = output.name.removesuffix(".jsonl")
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)[:40].strip("-") or "run"
