"""The work of `gymq score`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from gymq.bus.rpc.calls import Calls
from gymq.cli.shared.cluster import STORE, connected
from gymq.cluster.server import find_running
from gymq.config import Config
from gymq.data.run_changes import RecordedInstance
from gymq.data.run_files import RunFiles
from gymq.errors import UsageError
from gymq.execution.model_runner import BusModels
from gymq.ext.scoring.score import ScoreOptions, ScoreSummary
from gymq.ext.scoring.score import score as score_file
from gymq.ext.shared.local_verifiers import Verifiers
from gymq.ext.shared.rendering import first_words
from gymq.failures import JudgeFailed
from gymq.render import counted, listing, listing_console, shown_decimal
from gymq.resources import ModelCaller


async def score_rollouts(
    options: ScoreOptions, settings: Config, only: str | None, nats: str | None, *, quiet: bool
) -> ScoreSummary:
    with _progress(quiet=quiet) as show:
        async with _models(nats) as models, Verifiers(settings, models=models, only=only) as verifiers:
            return await score_file(options, verifiers, show)


def only_verifier(settings: Config, resources: Path | None) -> str | None:
    """Return the instance of the file with a verifier, which then verifies everything; None without a file."""
    if resources is None:
        return None
    path = str(resources.resolve())
    return next(found.name for found in settings.instances if found.implementation == path)


def check_files(rollouts: Path, inputs: Path | None, output: Path, *, overwrite: bool) -> None:
    written = RunFiles(output)
    read = {path.resolve() for path in (rollouts, inputs) if path is not None}
    for path in (written.output, written.failures):
        if path.resolve() in read:
            raise UsageError(f"{path} would be read and written at the same time: choose another --output")
        if path.exists() and not overwrite:
            raise UsageError(f"{path} exists: choose another --output, or pass --overwrite")


# Judges ---------------------------------------------------------------------------------------------------------------


class _NoModels:
    """Refuse every model call: no cluster runs."""

    async def respond(self, model: str, params: dict[str, Any]) -> dict[str, Any]:
        raise JudgeFailed(
            f"no cluster runs in this folder, so {model} cannot be asked: start one with `gymq up`, or pass --nats URL"
        )


@asynccontextmanager
async def _models(nats: str | None) -> AsyncIterator[ModelCaller]:
    url = nats or await find_running(STORE)
    if url is None:
        yield _NoModels()
        return
    async with connected(url, name="gymq score") as bus:
        yield BusModels(Calls(bus))


# Printing -------------------------------------------------------------------------------------------------------------


class _Show(Protocol):
    def __call__(self, done: int, total: int) -> None: ...


@contextmanager
def _progress(*, quiet: bool) -> Iterator[_Show]:
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda done, total: None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("verifying", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def report(summary: ScoreSummary, options: ScoreOptions, *, as_json: bool) -> None:
    changes = sorted(summary.changes.items(), key=lambda change: -change[1])
    if as_json:
        fields = msgspec.structs.asdict(summary)
        fields["changed"] = summary.changed
        fields["changes"] = [{"before": before, "now": now, "rollouts": count} for (before, now), count in changes]
        fields["mean_before"], fields["mean_now"] = _means(summary)
        print(msgspec.json.encode(fields).decode())
        return
    verified = f"{summary.verified:,} of {counted(summary.total, 'rollout')} verified again"
    print(f"{verified}, {counted(summary.changed, 'reward')} changed")
    before, now = _means(summary)
    if before is not None and now is not None:
        means = f"{shown_decimal(before)} before, {shown_decimal(now)} now"
        print(f"mean reward of the {summary.compared:,} that had one: {means}")
    if summary.new:
        print(f"{summary.new:,} had no reward before and have one now")
    if summary.kept:
        print(f"{summary.kept:,} that passed were copied unchanged")
    if changes:
        table = listing("changed rewards", "before", "now", "rollouts", numbers=("before", "now", "rollouts"))
        shown = changes[:10]
        for (old, new), count in shown:
            table.add_row(shown_decimal(old), shown_decimal(new), f"{count:,}")
        if len(changes) > len(shown):
            table.caption = f"and {len(changes) - len(shown):,} other changes"
        listing_console().print(table)
    print(f"rollouts in {options.output}")
    failures = RunFiles(options.output).failures
    console = Console(stderr=True, soft_wrap=True)
    for name, count in sorted(summary.failures.items()):
        example = first_words(summary.messages[name], 300)
        console.print(Text(f"gymq: {count:,} could not be verified, {name}: ") + example)
    if summary.failures:
        print(f"gymq: they are in {failures}", file=sys.stderr)
    if summary.without_response:
        print(f"gymq: {summary.without_response:,} have no response, see {failures}", file=sys.stderr)


def _means(summary: ScoreSummary) -> tuple[float | None, float | None]:
    if not summary.compared:
        return None, None
    return summary.sum_before / summary.compared, summary.sum_now / summary.compared


def note_scored(rollouts: Path, verifiers: Mapping[str, RecordedInstance]) -> None:
    """Note in the manifest of a run that all its rollouts were verified with these versions of its verifiers."""
    files = RunFiles(rollouts)
    with suppress(UsageError), files.locked():  # a collection that runs keeps its manifest
        manifest = files.read_manifest()
        if manifest is not None:
            sources = {one.source for one in verifiers.values() if one.kind == "resources" and one.source}
            files.write_manifest(msgspec.structs.replace(manifest, scored=sorted(sources)))
