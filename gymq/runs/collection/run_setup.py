"""Before a collection: its rows and its manifest are made, or found from an earlier start and extended."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gymq.bus import Bus, streams
from gymq.bus.discovery import find_workers, is_running
from gymq.bus.weights.known import why_unknown_to
from gymq.config import record_options
from gymq.data.disk_index import EarlierRows
from gymq.data.jsonl import JsonlFile, atomic_write, numbered_lines, truncate_torn_line
from gymq.data.resume import FailureRow
from gymq.data.rows import decode_line
from gymq.data.run_changes import Change
from gymq.data.run_configuration import encode_configuration
from gymq.data.run_files import Manifest, refused_row
from gymq.errors import UsageError
from gymq.protocol.messages import Run
from gymq.render import counted
from gymq.runs.collection.changed_rows import NewRows, carry_over, next_name
from gymq.runs.collection.plan import RunPlan
from gymq.runs.collection.usable_rows import UsableRows
from gymq.runs.older_rewards import agents_with_changed_verifier, rewards_of
from gymq.runs.stored_runs import Runs


class RunSetup:
    """Creates or finds the manifest of a collection; existing files change only if all checks pass.

    Attributes:
        warnings: sentences about input that looks wrong but can be used.
        changes: sentences about rows that cannot be used, and about changes since an earlier start that do not prevent
            the run from being resumed.
        is_resumed: whether the run was begun by an earlier start.
    """

    def __init__(self, bus: Bus, plan: RunPlan) -> None:
        self.warnings: list[str] = []
        self.changes: list[str] = []
        self.is_resumed = False
        self._bus = bus
        self._plan = plan
        self._files = plan.files
        self._options = plan.options

    async def manifest(self) -> Manifest:
        """Return that of the files found, extended if there are more rollouts now, or a new one with its rows.

        Raises:
            UsageError, RowError, JsonlError: bad input; nothing was changed.
            BusError
        """
        try:
            earlier = self._plan.earlier()
            if earlier is None:
                return await self._begin()
            self.is_resumed = True
            return await self._resume(earlier)
        except OSError as error:
            raise UsageError(f"{error.filename or self._files.output}: {error.strerror}") from None

    async def _resume(self, earlier: Manifest) -> Manifest:
        """Compare a run with the current options, and extend it by the rollouts that are new.

        Raises:
            UsageError: a setting that determines the rollouts changed, or some rollouts are no longer requested.
        """
        options = self._options
        not_asked, resized = self._plan.changes(earlier)
        outdated = agents_with_changed_verifier(earlier.config, options.config)
        older = await asyncio.to_thread(rewards_of, self._files.output, outdated)
        manifest = msgspec.structs.replace(
            earlier,
            older_rewards=earlier.older_rewards | older,
            score_with=options.score_with,
            input=str(options.input),
            input_digest=await asyncio.to_thread(self._plan.dataset.digest),
            settings=options.settings(),
            config=options.config,
            config_digest=options.config_digest,
        )
        is_new_input = manifest.input_digest != earlier.input_digest
        if is_new_input or resized or not await self._has_rows(earlier):
            manifest = await self._extend(manifest, resized, is_new_input=is_new_input)
        elif manifest != earlier:
            self._files.write_manifest(manifest)
        await self._record(manifest)
        self.changes += [*not_asked, *map(self._plan.shown, resized)]
        if manifest.run == earlier.run and manifest.num_rollouts > earlier.num_rollouts:
            self.changes.append(f"{counted(manifest.num_rollouts - earlier.num_rollouts, 'rollout')} added")
        return manifest

    async def _has_rows(self, manifest: Manifest) -> bool:
        """Return whether all rows of the run are in its file; their agents run."""
        if not self._files.materialised.exists():
            return False
        num_rows, agents = await asyncio.to_thread(self._rows_and_agents)
        if num_rows != manifest.num_rollouts:
            return False  # killed while the run was extended
        await self._check_agents(agents)
        return True

    async def _extend(self, manifest: Manifest, resized: Sequence[Change], *, is_new_input: bool) -> Manifest:
        """Make the rows again. If those there were are among them, the run is extended; otherwise another one follows.

        The manifest is written first and decides: rows that are not yet those of the manifest are made by the next
        start, and none of the new ones was submitted before both are there.
        """
        files = self._files
        if not files.materialised.exists() and (is_new_input or resized):
            gone = f"{files.materialised.name} with its rows is gone, and what is asked for changed"
            raise self._plan.refusal(gone)
        with (
            _replacement(files.materialised) as rows,
            _replacement(files.failures) as refused,
            EarlierRows() as known,
        ):
            made = await asyncio.to_thread(self._materialise, rows, refused, known)
            self._plan.check_kept(known, resized)
            await self._check_agents(made.agents)
            if known.num_missing or known.num_moved:
                return await self._begin_again(manifest, made, NewRows(rows, refused), known)
            await asyncio.to_thread(_renew_refused, files.failures, refused)
            manifest = msgspec.structs.replace(
                manifest,
                num_rollouts=made.num_rollouts,
                num_refused=made.problems.count,
                extended_to=max(manifest.extended_to or 0, known.grown_to) or None,
            )
            files.write_manifest(manifest)
            rows.replace(files.materialised)
        return manifest

    async def _begin_again(self, manifest: Manifest, made: UsableRows, new: NewRows, known: EarlierRows) -> Manifest:
        """Begin the run that follows one with other rows; its files take their places once the manifest names it.

        Args:
            manifest: that of the earlier run, with the settings of today.
        """
        files, earlier = self._files, manifest.run
        run = next_name(earlier, _token_of(files.output), manifest.input_digest)
        kept = await carry_over(self._bus, files, earlier, run, new, known)
        self.changes.append(f"{kept}; run {run} follows {earlier}")
        rewards = await asyncio.to_thread(rewards_of, files.staged(run)[files.output], manifest.older_rewards)
        manifest = msgspec.structs.replace(
            manifest,
            run=run,
            num_rollouts=made.num_rollouts,
            num_refused=made.problems.count,
            extended_to=None,
            older_rewards={agent: min(older, rewards[agent]) for agent, older in manifest.older_rewards.items()},
        )
        files.write_manifest(manifest)
        files.settle()
        return manifest

    def _rows_and_agents(self) -> tuple[int, dict[str, str]]:
        """Return the number of materialised rows and their agents, with file and line that name each first."""
        agents: dict[str, str] = {}
        num_rows = 0
        for row in self._files.rows():
            num_rows += 1
            agents.setdefault(row.agent, f"{self._files.materialised}:{row.line_number}")
        return num_rows, agents

    async def _record(self, manifest: Manifest) -> None:
        """Store what a cluster is to know of the run, unless it knows it."""
        configuration = encode_configuration(
            record_options(self._options.given()) | {"token_ids": self._options.token_ids},  # a form, no token
            self._options.config,
        )

        def known(stored: Run | None) -> Run:
            return Run(
                run=manifest.run,
                created_at=time.time() if stored is None else stored.created_at,
                fingerprint=f"{manifest.input_digest}/{manifest.config_digest}",
                models=self._plan.models,
                num_rollouts=manifest.num_rollouts,
                extended_to=manifest.extended_to,
                note="" if stored is None else stored.note,
                tags=[] if stored is None else stored.tags,
                configuration=configuration,
            )

        await Runs(self._bus).change(manifest.run, known)

    async def _begin(self) -> Manifest:
        options, files = self._options, self._files
        replaced = files.read_run()
        with _replacement(files.materialised) as rows, _replacement(files.failures) as refused:
            made = await asyncio.to_thread(self._materialise, rows, refused)
            await self._check_agents(made.agents)
            if replaced is not None:
                await streams.delete_run(self._bus.js, replaced)
            if options.overwrite:
                files.remove()
            rows.replace(files.materialised)
            if made.problems.count:
                refused.replace(files.failures)
        manifest = Manifest(
            run=f"{_token_of(files.output)}-{secrets.token_hex(4)}",
            input=str(options.input),
            input_digest=self._plan.dataset.digest(),
            settings=options.settings(),
            config_digest=options.config_digest,
            config=options.config,
            score_with=options.score_with,
            num_rollouts=made.num_rollouts,
            num_refused=made.problems.count,
        )
        await self._record(manifest)
        files.write_manifest(manifest)
        return manifest

    def _materialise(self, path: Path, failures: Path, known: EarlierRows | None = None) -> UsableRows:
        """Write the rows of the run, and the failures of those that cannot be used.

        Args:
            known: gets the rows of an earlier start, and looks up those of this one.
        """
        if known is not None:
            self._plan.add_earlier_rows(known)

        def refuse(problem: str) -> None:
            refused.write(refused_row(problem) + b"\n")

        with (
            atomic_write(path) as file,
            atomic_write(failures) as refused,
            self._plan.rows(known=known, on_problem=refuse) as rows,
        ):
            for row in rows:
                file.write(row.json + b"\n")
            rows.check()
            self.warnings += rows.warnings()
            self.changes += rows.problems.lines()
        return rows

    async def _check_agents(self, agents: dict[str, str]) -> None:
        if (asked := self._options.materialise.agent_name) is not None:  # even if each row names another
            agents = {asked: "--agent"} | agents
        for agent, where in sorted(agents.items()):
            if not await is_running(self._bus, agent, "agents"):
                found = [worker for worker in await find_workers(self._bus) if worker["metadata"]["kind"] == "agents"]
                running = ", ".join(sorted({worker["name"] for worker in found})) or "none"
                by_row = (
                    "" if agent == self._options.materialise.agent_name else ", which the row names in `agent_ref`,"
                )
                raise UsageError(f"{where}: no agent named {agent!r}{by_row} is running; running: {running}")
        if self._options.max_staleness is not None and (reason := await why_unknown_to(self._bus, agents)):
            raise UsageError(reason)


@contextmanager
def _replacement(path: Path) -> Iterator[Path]:
    """Name a file that may take the place of `path`; it is deleted where it did not."""
    new = path.with_name(f".{path.name}.new")
    try:
        yield new
    finally:
        new.unlink(missing_ok=True)


def _renew_refused(failures: Path, refused: Path) -> None:
    """Put the lines of refused rows in the place of those that a file of failures has; they belong to no rollout."""
    if failures.exists():
        truncate_torn_line(failures)
    with atomic_write(failures) as renewed:
        for _, where, line in numbered_lines(JsonlFile(failures)) if failures.exists() else ():
            if decode_line(line, FailureRow, where).task_index is not None:
                renewed.write(line)
        renewed.writelines(JsonlFile(refused))


def _token_of(output: Path) -> str:
    """Return the part of a run's name that identifies its output file."""
    name = output.name.removesuffix(".jsonl")
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)[:40].strip("-") or "run"
