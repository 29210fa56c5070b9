"""gymq profile"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gymq.bus import Bus
from gymq.cli.cluster import connected, running_url, stored_url
from gymq.cli.errors import Refused, told_plainly
from gymq.cli.table import member_table, profile_table, rate_table
from gymq.jetstream import JetStream
from gymq.jsonl import JsonlError
from gymq.messages import Outcome, Run
from gymq.outcome_store import OutcomeStore
from gymq.profile import ProfileError
from gymq.profile_files import write_profile
from gymq.profiler import CHECKPOINT_EVERY_S, last_profile, read_profile
from gymq.rows import RowError
from gymq.run_export import RunExport
from gymq.run_files import RunFiles
from gymq.run_profile import add_outcome, profile_of_files
from gymq.running import ProfileSnapshot, RunningProfile
from gymq.runs import Runs


def profile(
    *,
    run: str | None = None,
    live: bool = False,
    task: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    input: Annotated[Path | None, Parameter(alias="-i")] = None,
    rollouts: Path | None = None,
    allow_partial: bool = False,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    k: str | None = None,
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
    json: bool = False,
) -> int:
    """Statistics of a run: pass@k with intervals, rewards, the verifier's numbers, tokens.

    With --run from a cluster (or from what is stored in this folder), with --input and --rollouts from the files of a
    run, without any cluster.

    Args:
        run: the run, as `gymq rollouts` lists it.
        live: show the statistics that the running cluster keeps, again and again until the run is complete.
        task: only this task of the run.
        input: materialised rows of a run, JSONL (`..._materialized_inputs.jsonl`).
        rollouts: rollouts of the same run, JSONL.
        allow_partial: let rows of --input have no rollout yet.
        output: write the statistics as files `OUTPUT_reward_profiling.jsonl` and `OUTPUT_agent_metrics.json`; with
            --input the default is beside the rollouts.
        k: show pass@k for these k, for example `1,8,64`.
        nats: URL of a NATS server with the streams of gymq.
        json: print the statistics as one JSON object.
    """
    with told_plainly():
        ks = _ks(k)
        if run is not None and (input is not None or rollouts is not None):
            raise Refused("--run and --input exclude each other: a run is read from a cluster or from its files")
        if run is None:
            if input is None or rollouts is None:
                raise Refused("give --run RUN, or both --input ROWS.jsonl and --rollouts ROLLOUTS.jsonl")
            if live or task is not None:
                raise Refused("--live and --task need --run")
            return _profile_files(input, rollouts, allow_partial, output, ks, json)
        if live:
            if task is not None or output is not None:
                raise Refused("--live shows whole runs and writes no files: leave out --task and --output")
            return _profile_live(run, ks, nats, json)
        return asyncio.run(_profile_run(run, task, output, ks, nats, json))


# From files -----------------------------------------------------------------------------------------------------------


def _profile_files(
    rows: Path, rollouts: Path, allow_partial: bool, output: Path | None, ks: list[int] | None, as_json: bool
) -> int:
    files = RunFiles(rollouts)
    files.materialised = rows
    if not files.failures.exists():
        files.failures = Path(os.devnull)
    target = rollouts if output is None else _at_stem(output, rollouts)
    with _profile_written(target, rows, rollouts, allow_partial=allow_partial) as paths:
        try:
            snapshot = profile_of_files(files).snapshot(ks)
        except (msgspec.MsgspecError, ValueError) as error:
            raise Refused(str(error)) from None
    manifest = RunFiles(rollouts).read_manifest()
    _report(snapshot, rollouts.name if manifest is None else manifest.run, (), ks, as_json=as_json, paths=paths)
    return 0


def _at_stem(output: Path, rollouts: Path) -> Path:
    """The output file whose profile has the names asked for; `.jsonl` at their end does not count."""
    stem = output.with_suffix("") if output.suffix == ".jsonl" else output
    compression = rollouts.suffix if rollouts.suffix in (".gz", ".zst") else ""
    return stem.with_name(f"{stem.name}.jsonl{compression}")


@contextmanager
def _profile_written(target: Path, rows: Path, rollouts: Path, *, allow_partial: bool) -> Iterator[list[Path]]:
    """Write the files of a profile as if the rollouts were at `target`; gives their paths.

    They take the place of what is there when the block ends without an exception.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    # The names follow from the rollouts' own, and the folder is on the same disk, so that moving is one step.
    with tempfile.TemporaryDirectory(prefix=".gymq-profile-", dir=target.parent) as folder:
        link = Path(folder) / target.name
        link.symlink_to(rollouts.resolve())
        try:
            written = write_profile(rows, link, allow_partial=allow_partial)
        except (JsonlError, ProfileError, RowError) as error:
            raise Refused(str(error).replace(str(link), str(rollouts))) from None
        made = [written.reward_profiling, written.agent_metrics]
        yield [target.parent / path.name for path in made]
        for path in made:
            path.replace(target.parent / path.name)


# From a cluster -------------------------------------------------------------------------------------------------------


async def _profile_run(
    run: str, task: int | None, output: Path | None, ks: list[int] | None, nats: str | None, as_json: bool
) -> int:
    found = RunningProfile()
    async with stored_url(nats) as url, connected(url, name="gymq profile") as bus:
        record = await _record(bus, run)
        if output is None:
            after = 0
            if task is None:
                found, after = await last_profile(JetStream(bus), run)  # reading a million outcomes takes minutes
            async for sequence, outcome in _outcomes(bus, run, task, after):
                _add(found, sequence, outcome)
            paths = []
        else:
            paths = await _write_profile_of_run(_outcomes(bus, run, task), found, output)
    snapshot = found.snapshot(ks)
    if not snapshot.agents:
        where = f"run {run}" if task is None else f"task {task} of run {run}"
        raise Refused(f"{where} has no rollouts yet")
    name = run if task is None else f"{run}, task {task}"
    _report(snapshot, name, record.models, ks, as_json=as_json, paths=paths)
    return 0


async def _write_profile_of_run(
    outcomes: AsyncIterator[tuple[int, Outcome]], found: RunningProfile, output: Path
) -> list[Path]:
    """Add the outcomes to `found`, and write the files of their profile by way of the files of a run."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".gymq-profile-", dir=output.parent) as folder:
        with RunExport(Path(folder) / "rollouts.jsonl") as export:
            async for sequence, outcome in outcomes:
                _add(found, sequence, outcome)
                export.add(outcome)
        files = export.files
        target = _at_stem(output, files.output)
        with _profile_written(target, files.materialised, files.output, allow_partial=True) as paths:
            return paths


def _outcomes(bus: Bus, run: str, task: int | None, after: int = 0) -> AsyncIterator[tuple[int, Outcome]]:
    store = OutcomeStore(bus)
    return store.read(run, after=after) if task is None else store.read_task(run, task)


def _add(profile: RunningProfile, sequence: int, outcome: Outcome) -> None:
    try:
        add_outcome(profile, sequence, outcome)
    except ValueError as error:
        print(f"gymq: warning: left out: {error}", file=sys.stderr)


async def _record(bus: Bus, run: str) -> Run:
    """What is known of a run, which must exist."""
    runs = Runs(bus)
    record = await runs.record(run)
    if record is not None:
        return record
    if await runs.num_stored(run):
        return Run(run=run, created_at=0.0)
    raise Refused(f"there is no run {run!r}; `gymq rollouts` lists the runs")


# Live -----------------------------------------------------------------------------------------------------------------


def _profile_live(run: str, ks: list[int] | None, nats: str | None, as_json: bool) -> int:
    console = Console()
    if as_json or not console.is_terminal:
        return asyncio.run(_live_once(run, ks, nats, as_json))
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_live(run, ks, nats, console))
    return 0


async def _live_once(run: str, ks: list[int] | None, nats: str | None, as_json: bool) -> int:
    async with connected(await running_url(nats), name="gymq profile") as bus:
        record = await _record(bus, run)
        snapshot, _ = await _checkpoint(bus, run, ks)
    if snapshot is None:
        raise Refused(f"the first rollouts of run {run} have not come yet")
    _report(snapshot, run, record.models, ks, as_json=as_json)
    return 0


async def _live(run: str, ks: list[int] | None, nats: str | None, console: Console) -> None:
    """Refresh the rates until the run is complete, then print everything."""
    async with connected(await running_url(nats), name="gymq profile") as bus:
        record = await _record(bus, run)
        runs = Runs(bus)
        with Live(console=console, auto_refresh=False, transient=True) as screen:
            while True:
                stored = await runs.num_stored(run)
                snapshot, sequence = await _checkpoint(bus, run, ks)
                shown: list[RenderableType] = [Text(_how_far(stored, record.num_rollouts))]
                if snapshot is not None:
                    shown = [
                        profile_table(snapshot, run=run, models=record.models, ks=ks),
                        *_failures(snapshot),
                        *shown,
                    ]
                screen.update(Group(*shown), refresh=True)
                complete = record.num_rollouts is not None and stored >= record.num_rollouts
                if snapshot is not None and complete and sequence >= await runs.last_sequence(run):
                    break
                await asyncio.sleep(CHECKPOINT_EVERY_S)
    _report(snapshot, run, record.models, ks, as_json=False)
    print(_how_far(stored, record.num_rollouts))


async def _checkpoint(bus: Bus, run: str, ks: list[int] | None) -> tuple[ProfileSnapshot | None, int]:
    """The statistics that the cluster keeps, and the stream sequence they reach to."""
    checkpoint = await read_profile(JetStream(bus), run)
    if checkpoint is None:
        return None, 0
    try:
        return RunningProfile.from_state(checkpoint.state).snapshot(ks), checkpoint.sequence
    except ValueError as error:
        raise Refused(str(error)) from None


def _how_far(stored: int, total: int | None) -> str:
    if total is None:
        return f"{stored:,} rollouts so far; Ctrl-C ends the view"
    return f"{stored:,} of {total:,} rollouts" + ("" if stored >= total else "; Ctrl-C ends the view, not the run")


# Printing -------------------------------------------------------------------------------------------------------------


def _report(
    snapshot: ProfileSnapshot,
    run: str,
    models: Sequence[str],
    ks: list[int] | None,
    *,
    as_json: bool,
    paths: Sequence[Path] = (),
) -> None:
    if as_json:
        statistics: dict[str, Any] = {"run": run, "open_tasks": snapshot.open_tasks}
        statistics["agents"] = msgspec.to_builtins(snapshot.agents, str_keys=True)
        if paths:
            statistics["files"] = [str(path) for path in paths]
        print(msgspec.json.encode(statistics).decode())
        return
    console = Console()
    for table in _tables(snapshot, run, models, ks):
        console.print(table)
        console.print()
    if paths:
        print(f"statistics in {' and '.join(map(str, paths))}")


def _tables(snapshot: ProfileSnapshot, run: str, models: Sequence[str], ks: list[int] | None) -> list[RenderableType]:
    tables: list[RenderableType] = [profile_table(snapshot, run=run, models=models, ks=ks)]
    for name, agent in snapshot.agents.items():
        if agent.rollouts:
            tables += [rate_table(name, agent, ks), member_table(name, agent)]
    return tables + _failures(snapshot)


def _failures(snapshot: ProfileSnapshot) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for name, agent in snapshot.agents.items():
        failures = ", ".join(f"{count:,} {failure}" for failure, count in sorted(agent.failures.items()))
        if failures:
            lines.append(Text(f"failures of {name}: {failures}", "yellow"))
    return lines


def _ks(text: str | None) -> list[int] | None:
    if text is None:
        return None
    ks = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if not all(1 <= k <= 1_000_000 for k in ks):
        raise Refused(f"--k must be numbers from 1 with commas in between, such as 1,4,16, not {text!r}")
    return sorted(set(ks))
