"""gymq collect"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pydantic
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console

from gymq.authoring import first_problem
from gymq.bus import Bus
from gymq.cli.cluster import cluster_url, read_config
from gymq.cli.errors import Refused, told_plainly
from gymq.cli.printable import printable
from gymq.cli.progress import show_progress
from gymq.cli.table import print_profile, profile_table
from gymq.collect import Collection, CollectOptions, Progress
from gymq.config import Config, fingerprint
from gymq.discovery import find_workers
from gymq.materialise import MaterialiseOptions
from gymq.profile_files import write_profile
from gymq.prompt import PromptError, PromptTemplate
from gymq.run_profile import profile_of_files
from gymq.run_setup import DEFAULT_WINDOW
from gymq.running import PASS_THRESHOLD, ProfileSnapshot
from gymq.weights import MAX_VERSIONS

FIND_TRIES = 10  # half a second each


def collect(
    *overrides: str,
    input: Annotated[Path, Parameter(alias="-i")],
    output: Annotated[Path, Parameter(alias="-o")],
    config: Annotated[tuple[Path, ...], Parameter(alias="-c", consume_multiple=False)] = (),
    resources: Path | None = None,
    model_url: str | None = None,
    model: str | None = None,
    agent: str | None = None,
    num_repeats: int = 1,
    num_repeats_add_seed: bool = False,
    limit: int | None = None,
    prompt_config: Path | None = None,
    concurrency: int = DEFAULT_WINDOW,
    weight: float = 1.0,
    priority: bool = False,
    timeout: float = 3600.0,
    max_staleness: Annotated[int | None, Parameter(validator=Number(gte=0, lte=MAX_VERSIONS))] = None,
    pass_threshold: float = PASS_THRESHOLD,
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
    overwrite: bool = False,
    strict_rows: bool = False,
    json: bool = False,
    log_level: str = "info",
) -> int:
    """Roll out a data set: rows in, verified rollouts and pass@k out.

    Joins the cluster that runs in this folder or at --nats; if there is none, starts one for the while. A collection
    that was interrupted goes on when the same command is given again.

    Args:
        overrides: changes to the configuration, as `key=value`, `+key=value`, `++key=value` or `~key`.
        input: rows to roll out: a file in JSONL, Parquet or Arrow, or a folder of them.
        output: file for the rollouts, JSONL; the other files of the run are put beside it.
        config: configuration file; may be given several times.
        resources: Python file with a verifier, to try it without any configuration.
        model_url: base URL of an OpenAI-compatible endpoint to use as the policy; its key is read from
            GYMQ_MODEL_API_KEY or OPENAI_API_KEY.
        model: name of the model at that endpoint.
        agent: agent instance for rows that name none; not needed if there is only one.
        num_repeats: rollouts a row.
        num_repeats_add_seed: give each repeat a seed of its own.
        limit: use only so many rows.
        prompt_config: YAML file with a prompt template.
        concurrency: rollouts in flight at most.
        weight: share of the workers among runs that are collected at the same time; multiplies the concurrency.
        priority: let agents start these rollouts before those of other runs.
        timeout: seconds a rollout may take.
        max_staleness: updates of the policy (`gymq weights push`) that may come between the first reply of a rollout
            and its end; one that is older is made anew.
        pass_threshold: smallest reward with which a rollout passes, for the pass@k that is printed.
        nats: URL of a cluster to join.
        overwrite: delete what an earlier run left at the output.
        strict_rows: refuse the whole input for a row that cannot be used; otherwise each such row is a failure of its
            own, with file and line.
        json: print the final statistics as JSON.
        log_level: debug, info, warning or error.
    """
    with told_plainly():
        settings = read_config(config, overrides, resources=resources, model_url=model_url, model=model)
        agents = [found.name for found in settings.instances if found.kind == "agents"]
        if agent is None and len(agents) == 1:
            agent = agents[0]
        options = CollectOptions(
            input=input,
            output=output,
            materialise=_materialise_options(
                agent_name=agent,
                limit=limit,
                num_repeats=num_repeats,
                num_repeats_add_seed=num_repeats_add_seed,
                prompt=None if prompt_config is None else _prompt(prompt_config),
            ),
            window=_window(concurrency, weight),
            urgent=priority,
            rollout_timeout_s=timeout,
            max_staleness=max_staleness,
            config_digest=fingerprint(settings.tree) if settings.instances else "",
            overwrite=overwrite,
            strict_rows=strict_rows,
        )
        return asyncio.run(_collect(options, settings, nats, pass_threshold, json, log_level))


async def _collect(
    options: CollectOptions, config: Config, nats: str | None, pass_threshold: float, as_json: bool, log_level: str
) -> int:
    async with cluster_url(nats, config, log_level=log_level) as url:
        bus = await Bus.connect(url, role="client", name="gymq collect")
        try:
            options = replace(options, models=await _check_workers(bus, config))
            collection = Collection(bus, options)
            with show_progress(collection.progress, quiet=as_json):
                progress = await collection.run()
        finally:
            await bus.close()
    for warning in collection.warnings:
        print(f"gymq: warning: {warning}", file=sys.stderr)
    return _report(collection, progress, options, pass_threshold, as_json)


def _report(
    collection: Collection, progress: Progress, options: CollectOptions, pass_threshold: float, as_json: bool
) -> int:
    files = collection.files
    write_profile(files.materialised, files.output, allow_partial=True)
    snapshot = profile_of_files(files, pass_threshold).snapshot()
    if as_json:
        print(_summary(progress, snapshot))
    else:
        table = profile_table(snapshot, run=progress.run, models=options.models, threshold=pass_threshold)
        print_profile(Console(), table)
        print(f"rollouts in {files.output}, statistics in {files.reward_profiling} and {files.agent_metrics}")
    if progress.refused:
        refused = f"{progress.refused:,} row{'s' * (progress.refused > 1)} of {options.input} cannot be used"
        print(f"gymq: {refused}; {files.failures} names the line and the problem", file=sys.stderr)
    if progress.failed:
        _print_failures(collection)
    return 3 if progress.failed or progress.refused else 0


def _print_failures(collection: Collection) -> None:
    """Say on standard error what failed and why, and how one of each kind is looked at."""
    progress = collection.progress
    lines = [f"gymq: {progress.failed:,} of {progress.total:,} rollouts failed:"]
    for group in collection.failed:
        message = printable(group.message).plain.replace("\n", "\n    ")
        lines.append(f"  {group.num_rollouts:,} {group.failure_class}, for example: {message}")
        show = f"gymq rollouts --run {progress.run} --task {group.task_index} --rollout {group.rollout_index}"
        lines.append(f"    to look at it: {show}")
    lines.append(f"All of them are in {collection.files.failures}; the same command retries those that may succeed.")
    print("\n".join(lines), file=sys.stderr)


def _summary(progress: Progress, snapshot: ProfileSnapshot) -> str:
    summary: dict[str, Any] = {
        "run": progress.run,
        "rollouts": progress.total,
        "done": progress.done,
        "failed": progress.failed,
        "refused": progress.refused,
        "agents": msgspec.to_builtins(snapshot.agents, str_keys=True),
    }
    return msgspec.json.encode(summary).decode()


def _materialise_options(**options: Any) -> MaterialiseOptions:
    try:
        return MaterialiseOptions(**options)
    except pydantic.ValidationError as error:
        raise Refused(first_problem(error)) from None


def _window(concurrency: int, weight: float) -> int:
    if concurrency < 1 or weight <= 0:
        raise Refused(f"--concurrency {concurrency} and --weight {weight:g} must be more than 0")
    return max(1, round(concurrency * weight))


def _prompt(file: Path) -> PromptTemplate:
    try:
        return PromptTemplate.from_yaml(file.read_text(), str(file))
    except (OSError, PromptError) as error:
        raise Refused(str(error)) from None


async def _check_workers(bus: Bus, config: Config) -> list[str]:
    """The models that run, as the final table names them.

    Raises:
        Refused: the cluster serves something else than the configuration says.
    """
    wanted = {(instance.name, instance.implementation) for instance in config.instances}
    for _ in range(FIND_TRIES):
        running = {(found["name"], found["metadata"]["implementation"]): found for found in await find_workers(bus)}
        if wanted <= running.keys():
            break  # otherwise a worker may only be too busy to answer at once
    for instance in config.instances:
        if (instance.name, instance.implementation) not in running:
            others = ", ".join(f"{name} = {implementation}" for name, implementation in sorted(running)) or "nothing"
            raise Refused(
                f"the cluster that runs here does not serve {instance.name} = {instance.implementation}; it serves "
                f"{others}. Stop it, or collect without a configuration of your own"
            )
    asked = _models_of_agents(config)
    names = {found.name: found.options.get("openai_model") or found.options.get("model") for found in config.instances}
    return [
        f"{name} = {implementation}" + (f" ({names[name]})" if names.get(name) else "")
        for (name, implementation), found in sorted(running.items())
        if found["metadata"]["kind"] == "models" and (not asked or name in asked)
    ]


def _models_of_agents(config: Config) -> set[str]:
    """Return the names of the models that agents of a configuration ask; judges are not among them."""
    values = [value for found in config.instances if found.kind == "agents" for value in found.options.values()]
    references = [value for value in values if isinstance(value, dict)]
    return {value["name"] for value in references if value.get("type") == "responses_api_models" and "name" in value}
