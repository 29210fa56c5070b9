"""gymq score"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from gymq.calls import Calls
from gymq.cli.cluster import STORE, connected, read_config
from gymq.cli.errors import Refused, told_plainly
from gymq.cli.listing import listing
from gymq.cli.printable import first_words
from gymq.config import Config
from gymq.model_runner import BusModels
from gymq.outcomes import JudgeFailed
from gymq.resources import ModelCaller
from gymq.run_files import RunFiles
from gymq.score import DEFAULT_CONCURRENCY, ScoreOptions, ScoreSummary
from gymq.score import score as score_file
from gymq.server import find_running
from gymq.verifiers import Verifiers

MOST_CHANGES = 10
_MESSAGE = 300

AtLeastOne = Parameter(validator=Number(gte=1))


def score(
    *overrides: str,
    rollouts: Path,
    output: Annotated[Path, Parameter(alias="-o")],
    inputs: Annotated[Path | None, Parameter(alias="-i")] = None,
    config: Annotated[tuple[Path, ...], Parameter(alias="-c", consume_multiple=False)] = (),
    resources: Path | None = None,
    concurrency: Annotated[int, AtLeastOne] = DEFAULT_CONCURRENCY,
    limit: Annotated[int | None, AtLeastOne] = None,
    failed_only: bool = False,
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
    overwrite: bool = False,
    json: bool = False,
) -> int:
    """Verify stored rollouts again, without a model: after a verifier changed, or where it could not decide.

    The verifiers run in this process, so no cluster is needed, unless one asks a judge model: the judge is then asked
    in the cluster that runs in this folder or at --nats. Ends with status 3 if rollouts could not be verified; these
    are beside the output in `..._failures.jsonl`, and can be scored again from there.

    Args:
        overrides: changes to the configuration, as `key=value`, `+key=value`, `++key=value` or `~key`.
        rollouts: rollouts of a run, or its failures, JSONL. Those with a `response` are verified.
        output: file for the rollouts with their new rewards, JSONL.
        inputs: the materialised rows of the run, JSONL; without it the rows are taken from the rollouts themselves,
            where members of the old verdict may have replaced some of theirs.
        config: configuration file; may be given several times. It says which verifier belongs to which agent.
        resources: Python file with a verifier, to use it for all rollouts without any configuration.
        concurrency: rollouts verified at a time.
        limit: only so many rollouts from the start of the file.
        failed_only: verify only rollouts with a reward below 1 or none, and take over the others as they are.
        nats: URL of a cluster whose models are asked.
        overwrite: replace the output of an earlier scoring.
        json: print the summary as JSON.
    """
    with told_plainly():
        settings = read_config(config, overrides, resources=resources, with_agent=False)
        if not settings.instances:
            raise Refused("there is nobody to verify: give --config FILE or --resources FILE.py")
        _check_files(rollouts, inputs, output, overwrite=overwrite)
        options = ScoreOptions(
            rollouts=rollouts,
            output=output,
            inputs=inputs,
            concurrency=concurrency,
            limit=limit,
            failed_only=failed_only,
        )
        summary = asyncio.run(_score(options, settings, _only(settings, resources), nats, quiet=json))
    _report(summary, options, as_json=json)
    return 3 if summary.failures or summary.without_response else 0


async def _score(
    options: ScoreOptions, settings: Config, only: str | None, nats: str | None, *, quiet: bool
) -> ScoreSummary:
    with _progress(quiet=quiet) as show:
        async with _models(nats) as models, Verifiers(settings, models=models, only=only) as verifiers:
            return await score_file(options, verifiers, show)


def _only(settings: Config, resources: Path | None) -> str | None:
    """The instance of the file with a verifier, if one was given: it verifies everything."""
    if resources is None:
        return None
    path = str(resources.resolve())
    return next(found.name for found in settings.instances if found.implementation == path)


def _check_files(rollouts: Path, inputs: Path | None, output: Path, *, overwrite: bool) -> None:
    written = RunFiles(output)
    read = {path.resolve() for path in (rollouts, inputs) if path is not None}
    for path in (written.output, written.failures):
        if path.resolve() in read:
            raise Refused(f"{path} would be read and written at the same time: choose another --output")
        if path.exists() and not overwrite:
            raise Refused(f"{path} exists: choose another --output, or say --overwrite")


# Judges ---------------------------------------------------------------------------------------------------------------


class _NoModels:
    """Nobody to ask."""

    async def respond(self, model: str, params: dict[str, Any]) -> dict[str, Any]:
        raise JudgeFailed(
            f"no cluster runs in this folder, so {model} cannot be asked: start one with `gymq up`, or say --nats URL"
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


def _report(summary: ScoreSummary, options: ScoreOptions, *, as_json: bool) -> None:
    changes = sorted(summary.changes.items(), key=lambda change: -change[1])
    if as_json:
        members = msgspec.structs.asdict(summary)
        members["changed"] = summary.changed
        members["changes"] = [{"before": before, "now": now, "rollouts": count} for (before, now), count in changes]
        members["mean_before"], members["mean_now"] = _means(summary)
        print(msgspec.json.encode(members).decode())
        return
    print(f"{summary.verified:,} of {summary.total:,} rollouts verified again, {summary.changed:,} rewards changed")
    before, now = _means(summary)
    if before is not None and now is not None:
        print(f"mean reward of the {summary.compared:,} that had one: {before:.4f} before, {now:.4f} now")
    if summary.new:
        print(f"{summary.new:,} had no reward before and have one now")
    if summary.kept:
        print(f"{summary.kept:,} that passed were taken over as they were")
    if changes:
        table = listing("changed rewards", "before", "now", "rollouts", numbers=("before", "now", "rollouts"))
        for (old, new), count in changes[:MOST_CHANGES]:
            table.add_row(f"{old:g}", f"{new:g}", f"{count:,}")
        if len(changes) > MOST_CHANGES:
            table.caption = f"and {len(changes) - MOST_CHANGES:,} other changes"
        Console().print(table)
    print(f"rollouts in {options.output}")
    failures = RunFiles(options.output).failures
    console = Console(stderr=True, soft_wrap=True)
    for name, count in sorted(summary.failures.items()):
        example = first_words(summary.messages[name], _MESSAGE)
        console.print(Text(f"gymq: {count:,} could not be verified, {name}: ") + example)
    if summary.failures:
        print(f"gymq: they are in {failures}", file=sys.stderr)
    if summary.without_response:
        print(f"gymq: {summary.without_response:,} have no response, see {failures}", file=sys.stderr)


def _means(summary: ScoreSummary) -> tuple[float | None, float | None]:
    if not summary.compared:
        return None, None
    return summary.sum_before / summary.compared, summary.sum_now / summary.compared
