"""The work of `gymq profile` for stored and running runs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cli.shared.cluster import connected, require_run, running_url, stored_url
from gymq.cli.shared.run_summary import print_older_rewards
from gymq.cli.shared.table import profile_table
from gymq.data.run_files import ReportFiles
from gymq.defaults import PASS_THRESHOLD
from gymq.errors import UsageError
from gymq.execution.services.profiler import CHECKPOINT_EVERY_S, last_profile, read_profile
from gymq.ext.rollout_files.run_export import RunExport
from gymq.ext.shared.printed_statistics import failure_lines, print_statistics
from gymq.ext.shared.runs_here import older_rewards_here
from gymq.protocol.messages import Outcome, Run
from gymq.render import counted
from gymq.runs.stored_runs import Runs
from gymq.stats.files import read_statistics
from gymq.stats.outcome_feed import add_outcome
from gymq.stats.running import ProfileSnapshot, RunningProfile


def report_at(output: Path) -> ReportFiles:
    """Return the files of a report with the requested stem, with or without `.jsonl` at its end; makes their folder."""
    if not output.name:
        raise UsageError(f"the output {output} is a folder: name a file in it")
    output.parent.mkdir(parents=True, exist_ok=True)
    return ReportFiles.at(output.with_suffix("") if output.suffix == ".jsonl" else output)


async def profile_run(
    run: str,
    task: int | None,
    output: Path | None,
    ks: list[int] | None,
    threshold: float,
    nats: str | None,
    as_json: bool,
) -> int:
    async with stored_url(nats) as url, connected(url, name="gymq profile") as bus:
        record = await _record(bus, run)
        found = RunningProfile(threshold, record.extended_to)
        paths: Sequence[Path] = ()
        if output is None:
            after = 0
            if task is None and threshold == PASS_THRESHOLD:
                found, after = await last_profile(bus.js, run)  # reading a million outcomes takes minutes
            async for sequence, outcome in OutcomeStore(bus).read(run, task, after=after):
                _add(found, sequence, outcome)
        else:
            paths = await _write_report(OutcomeStore(bus).read(run, task), found, output)
    snapshot = found.snapshot(ks)
    if not snapshot.agents:
        where = f"run {run}" if task is None else f"task {task} of run {run}"
        raise UsageError(f"{where} has no rollouts yet")
    name = run if task is None else f"{run}, task {task}"
    print_statistics(snapshot, name, record.models, ks, as_json=as_json, paths=paths)
    print_older_rewards(older_rewards_here(run))
    return 0


async def _write_report(
    outcomes: AsyncIterator[tuple[int, Outcome]], found: RunningProfile, output: Path
) -> ReportFiles:
    """Add the outcomes to `found`, and write their report by way of the files of a run."""
    report = report_at(output)
    with tempfile.TemporaryDirectory(prefix=".gymq-profile-", dir=output.parent) as folder:
        with RunExport(Path(folder) / "rollouts.jsonl") as export:
            async for sequence, outcome in outcomes:
                _add(found, sequence, outcome)
                export.add(outcome)
        read_statistics(export.files, report=report, snapshot=found.snapshot(), allow_partial=True)
    return report


def _add(profile: RunningProfile, sequence: int, outcome: Outcome) -> None:
    try:
        add_outcome(profile, sequence, outcome)
    except ValueError as error:
        print(f"gymq: warning: left out: {error}", file=sys.stderr)


async def _record(bus: Bus, run: str) -> Run:
    """Return the record of a run, which must exist."""
    record = await Runs(bus).record(run)
    if record is None:
        await require_run(bus, run)
    return record or Run(run=run, created_at=0.0)


# Live -----------------------------------------------------------------------------------------------------------------


def profile_live(run: str, ks: list[int] | None, nats: str | None, as_json: bool) -> int:
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
        raise UsageError(f"run {run} has no outcomes yet")
    print_statistics(snapshot, run, record.models, ks, as_json=as_json)
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
                        *failure_lines(snapshot),
                        *shown,
                    ]
                screen.update(Group(*shown), refresh=True)
                complete = record.num_rollouts is not None and stored >= record.num_rollouts
                if snapshot is not None and complete and sequence >= await runs.last_sequence(run):
                    break
                await asyncio.sleep(CHECKPOINT_EVERY_S)
    print_statistics(snapshot, run, record.models, ks, as_json=False)
    print(_how_far(stored, record.num_rollouts))


async def _checkpoint(bus: Bus, run: str, ks: list[int] | None) -> tuple[ProfileSnapshot | None, int]:
    """Return the statistics that the cluster keeps, and the last stream sequence that they include."""
    checkpoint = await read_profile(bus.js, run)
    if checkpoint is None:
        return None, 0
    try:
        return RunningProfile.from_state(checkpoint.state).snapshot(ks), checkpoint.sequence
    except ValueError as error:
        raise UsageError(f"run {run}: {error}; leave out --live to count its rollouts again") from None


def _how_far(stored: int, total: int | None) -> str:
    if total is None:
        return f"{counted(stored, 'rollout')} so far; Ctrl-C ends the view"
    ending = "" if stored >= total else "; Ctrl-C ends the view, not the run"
    return f"{stored:,} of {counted(total, 'rollout')}{ending}"


def read_ks(text: str | None) -> list[int] | None:
    if text is None:
        return None
    ks = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if not all(1 <= k <= 1_000_000 for k in ks):
        raise UsageError(f"--k must be numbers from 1 with commas in between, such as 1,4,16, not {text!r}")
    return sorted(set(ks))
