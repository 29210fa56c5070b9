"""The work of `gymq collect`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pydantic

from gymq.authoring import first_problem
from gymq.cli.actions.joined_cluster import ClusterStopped, check_served, noticing_its_end, run_joined
from gymq.cli.actions.opened_cluster import check_workers, cluster_url
from gymq.cli.shared.cluster import open_bus
from gymq.cli.shared.configuration import read_config, read_prompt, verifiers_of
from gymq.cli.shared.datasets import chosen_block, ready_rows
from gymq.cli.shared.parameters import CollectArguments
from gymq.cli.shared.run_summary import RunSummary, print_older_rewards, summary_of
from gymq.cli.shared.sampling import read_sampling
from gymq.cli.shared.table import profile_table
from gymq.cluster import event_loop
from gymq.config import Config
from gymq.config.overrides import parse
from gymq.config.unknown import CONCURRENCY
from gymq.data.materialise import MaterialiseOptions
from gymq.data.rows import RowError
from gymq.data.run_files import ReportFiles
from gymq.defaults import DEFAULT_WINDOW
from gymq.errors import UsageError
from gymq.protocol.instances import Instance
from gymq.protocol.messages import FailureClass, Priority
from gymq.redaction import redact
from gymq.render import counted, listing_console, print_prose, say
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.driver import OpenCluster, drive
from gymq.runs.collection.failure_limit import MaxFailures
from gymq.runs.collection.options import CollectOptions, default_output
from gymq.runs.collection.own_solutions import NOTHING_TO_PLAY, nothing_to_play, shown_unsolved, unsolved_rows
from gymq.runs.collection.plan import RunPlan
from gymq.runs.collection.progress_view import show_steps
from gymq.runs.older_rewards import older_rewards, score_command
from gymq.stats.files import read_statistics
from gymq.stats.running import ProfileSnapshot

WITHOUT_VERDICT = (FailureClass.VERIFIER_FAILED, FailureClass.JUDGE_FAILED, FailureClass.COMPONENT_FAILED)


def collect_rollouts(overrides: Sequence[str], given: CollectArguments) -> int:
    """Roll out the rows that the options of the command name, and return the exit status."""
    if given.prompt_field is not None and given.prompt_config is not None:
        raise UsageError("give either --prompt-field or --prompt-config")
    if given.rows is not None and given.dataset is not None:
        raise UsageError("give either --rows, a file, or --dataset, the name of a data set in the configuration")
    params, others = read_sampling(overrides, given.sampling)
    if given.rows is None and given.dataset is None and given.sources.benchmark is None:
        parse(others)  # a file of rows without its option is refused for that
        raise UsageError("missing --rows FILE, or --dataset NAME; `gymq collect --help` explains them")
    config = read_config(given.sources, others)
    if given.rows is None:
        block = chosen_block(config, given.sources, given.dataset, given.agent)
        given = replace(
            given,
            rows=ready_rows(block),
            agent=given.agent or block.agent,
            num_repeats=given.num_repeats or block.num_repeats,
            prompt_config=given.prompt_config or (block.prompt() if given.prompt_field is None else None),
        )
    return event_loop.run(_collect(collect_options(given, params, config), config, given))


def collect_options(given: CollectArguments, params: Mapping[str, Any], config: Config) -> CollectOptions:
    """Return the options of a collection.

    Args:
        given: the options of the command, which name rows.
        params: sampling parameters that replace those of the rows.
        config: the workers.

    Raises:
        UsageError: an option is invalid.
    """
    assert given.rows is not None
    sources, prompt, limit = given.sources, given.prompt_config, given.max_failures
    benchmark = [] if sources.benchmark is None else [Path(sources.benchmark) / "config.yaml"]
    try:
        materialise = MaterialiseOptions(
            agent_name=given.agent or config.only_agent,
            limit=given.limit,
            num_repeats=1 if given.num_repeats is None else given.num_repeats,
            num_repeats_add_seed=given.num_repeats_add_seed,
            responses_create_params=dict(params),
            prompt=None if prompt is None else read_prompt(prompt),
            prompt_field=given.prompt_field,
        )
    except pydantic.ValidationError as error:
        raise UsageError(first_problem(error)) from None
    return CollectOptions(
        input=given.rows,
        output=given.output
        or default_output(given.rows, [*benchmark, *sources.config], sources.resources, sources.model),
        materialise=materialise,
        window=given.concurrency or configured_window(config.tree) or DEFAULT_WINDOW,
        share=given.share,
        priority=Priority.URGENT if given.priority is True else Priority(given.priority) if given.priority else None,
        rollout_timeout_s=given.timeout,
        max_staleness=given.max_staleness,
        score_with=verifiers_of(sources, config),
        overwrite=given.overwrite,
        strict_rows=given.strict_rows,
        max_failures=None if limit is None else _read_max_failures(limit),
        token_ids=given.token_ids,
    )


async def _collect(options: CollectOptions, config: Config, given: CollectArguments) -> int:
    plan = RunPlan.with_workers(options, config)
    while True:
        try:
            collection = await drive(plan, _open_cluster(plan, config, given), say, quiet=given.json)
            break
        except ClusterStopped as stopped:
            if not config.instances:
                raise UsageError(f"{stopped}; the same command resumes it") from None
            say(f"{stopped}; resuming with the workers of this command")
            plan.keep_earlier()
    for warning in collection.warnings:
        say(f"warning: {warning}")
    unsolved = await asyncio.to_thread(unsolved_rows, plan)
    status = _report(collection, plan, given)
    if unsolved:
        say(shown_unsolved(unsolved))
    elif await asyncio.to_thread(nothing_to_play, plan):
        say(NOTHING_TO_PLAY)
    if collection.stopped:
        say(_stopped(collection))
    return status


@asynccontextmanager
async def _open_cluster(plan: RunPlan, config: Config, given: CollectArguments) -> AsyncIterator[OpenCluster]:
    """Check a plan, and open the cluster of another command or one of its own.

    Raises:
        ClusterStopped: the other command has stopped its cluster.
    """
    nats = given.nats
    async with AsyncExitStack() as stack:
        steps = stack.enter_context(ExitStack())
        show = steps.enter_context(show_steps(quiet=given.json))
        await check_workers(nats, config)  # before an option that is misspelt is taken for a changed one
        show("checking the rows")
        _check_rows(plan, config)

        async def probe(specs: Sequence[Instance]) -> None:
            show("asking the endpoints of models")
            await plan.probe(specs, say)
            show(f"starting {counted(len(specs), 'worker')}")

        resumed = plan.files.read_run()
        address = await stack.enter_async_context(
            cluster_url(nats, config, log_level=given.log_level, resumed=resumed, before_start=probe)
        )
        stack.enter_context(noticing_its_end(address))
        bus = await open_bus(address.url, name="gymq collect", timeout_s=10.0)
        stack.push_async_callback(bus.close)
        if address.is_of_another:
            show("looking for the workers of the cluster that runs here")
        models = await check_served(bus, config, address, is_here=nats is None)
        steps.close()
        if address.viewer_url is not None:
            say(f"viewer: {address.viewer_url}")
        run = partial(run_joined, bus=bus, url=address.url) if address.is_of_another else Collection.run
        yield OpenCluster(bus, models, address.viewer_url, run)


def _check_rows(plan: RunPlan, config: Config) -> None:
    try:
        plan.check()
    except RowError as error:
        if config.instances or plan.options.materialise.agent_name:
            raise
        hint = "no environment is given: --resources FILE.py, --config FILE or --agent NAME names one"
        raise UsageError(f"{error}\n{hint}") from None


def _report(collection: Collection, plan: RunPlan, given: CollectArguments) -> int:
    """Print the summary of a run, and return the exit status."""
    nats = given.nats
    joined = "" if nats is None or nats == os.environ.get("GYMQ_NATS") else f" --nats {redact(nats)}"
    files, progress = collection.files, collection.progress
    written = ReportFiles.beside(files.output)
    found = read_statistics(files, pass_threshold=given.pass_threshold, report=written, allow_partial=True)
    snapshot = found.profile.snapshot()
    facts = summary_of(progress, snapshot, found.truncated)
    if given.json:
        print(_summary(collection, snapshot, facts))
    else:
        if progress.done:
            table = profile_table(snapshot, run=progress.run, models=plan.models)
            listing_console().print(table)
        for line in facts.lines():
            print_prose(line, sys.stdout)
        if progress.done:
            print_prose(f"rollouts in {files.output}, statistics in {written.statistics}", sys.stdout)
            print(f"  in a browser     gymq view{joined}")
            print(f"  in the terminal  gymq rollouts --run {progress.run}{joined}")
            print(f"  more statistics  gymq profile --run {progress.run}{joined}")
    if progress.refused:
        refused = f"{counted(progress.refused, 'row')} of {plan.options.input} cannot be used"
        say(f"{refused}; {files.failures} names the line and the problem")
    print_older_rewards(older_rewards(files))
    if progress.failed:
        _print_failures(collection, joined)
    if collection.is_cancelled:
        done = f"{progress.done:,} of {counted(progress.total, 'rollout')} have a reward"
        say(f"run {progress.run} was cancelled: {done}; --overwrite starts over, and another --output begins a new run")
    return 3 if progress.done < progress.total or progress.refused else 0


def _print_failures(collection: Collection, joined: str) -> None:
    """Print the failures and their reasons to standard error, with the command that shows one of each kind."""
    progress = collection.progress
    say(f"{progress.failed:,} of {counted(progress.total, 'rollout')} failed:")
    for group in collection.failed:
        message = group.message.replace("\n", "\n    ")
        print_prose(f"  {group.num_rollouts:,} {group.failure_class}, for example: {message}", sys.stderr)
        show = f"gymq rollouts --run {progress.run} --task {group.task_index} --rollout {group.rollout_index}{joined}"
        print(f"    inspect it: {show}", file=sys.stderr)
    again = ""
    if not collection.is_cancelled:
        may_succeed = any(group.may_be_retried for group in collection.failed)
        again = "; the same command retries those that may succeed" if may_succeed else "; another try would fail again"
    print_prose(f"All of them are in {collection.files.failures}{again}.", sys.stderr)
    manifest = collection.files.read_manifest()
    if manifest is not None and any(group.failure_class in WITHOUT_VERDICT for group in collection.failed):
        print_prose("Once the verifier is mended, this verifies them without asking the model:", sys.stderr)
        print(f"  {score_command(collection.files.failures, manifest)}", file=sys.stderr)


def _stopped(collection: Collection) -> str:
    """Return why a run was stopped, and how it is continued."""
    progress = collection.progress
    left = f"{progress.total - progress.finished:,} of {counted(progress.total, 'rollout')} were not collected"
    in_flight = f" ({progress.in_flight:,} are in flight)" if progress.in_flight else ""
    return (
        f"stopped: {collection.stopped}; {left}{in_flight}. Fix the cause and run the same command again to resume; "
        "--max-failures changes when a run is stopped"
    )


def _summary(collection: Collection, snapshot: ProfileSnapshot, facts: RunSummary) -> str:
    progress = collection.progress
    summary: dict[str, Any] = {
        "run": progress.run,
        "rollouts": progress.total,
        "done": progress.done,
        "failed": progress.failed,
        "refused": progress.refused,
        "agents": msgspec.to_builtins(snapshot.agents, str_keys=True),
        "all": msgspec.to_builtins(snapshot.all, str_keys=True),
        "failures": [group._asdict() for group in collection.failed],
        **msgspec.to_builtins(facts),
    }
    return msgspec.json.encode(summary).decode()


def _read_max_failures(text: str) -> MaxFailures:
    try:
        return MaxFailures.parse(text)
    except ValueError as error:
        raise UsageError(f"--max-failures: {error}") from None


def configured_window(tree: Mapping[str, Any]) -> int | None:
    """Return the rollouts in flight that a configuration asks for."""
    given = tree.get(CONCURRENCY)
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 1):
        raise UsageError(f"{CONCURRENCY} must be a whole number of at least 1, not {given!r}")
    return given
