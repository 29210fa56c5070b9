"""The work of `gymq list`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from gymq.config import ConfigError, load
from gymq.config.assembled import POLICY, SIMULATED_MODEL
from gymq.config.benchmarks import Benchmark, benchmarks
from gymq.config.dataset_blocks import BENCHMARK, dataset_blocks
from gymq.defaults import Kind
from gymq.ext.shared.rendering import first_words
from gymq.ext.workbench.worker_description import WorkerDescription, describe_worker
from gymq.render import listing, printable


def print_facts(kind: Kind, facts: Sequence[WorkerDescription], console: Console) -> None:
    if kind != "resources":
        table = listing("", kind, "what it does")
        for one in facts:
            table.add_row(one.name, printable(one.problem or one.summary))
    else:
        table = listing("", kind, *RESOURCES_COLUMNS)
        for one in facts:
            table.add_row(one.name, *map(printable, resources_cells(one)))
    console.print(table)


RESOURCES_COLUMNS = ("rewards", "range", "deterministic", "tools", "state", "needs")


def resources_cells(facts: WorkerDescription) -> tuple[str, ...]:
    """Return the facts about a resources worker as the cells of a table row, without its name."""
    if facts.problem:
        return (facts.problem, *("" for _ in RESOURCES_COLUMNS[1:]))
    return (
        facts.summary,
        "-" if facts.reward_range is None else "{:g} to {:g}".format(*facts.reward_range),
        "yes" if facts.deterministic else "no",
        "yes" if facts.more_tools else str(len(facts.tools) or "-"),
        "replayable" if facts.replayable else "yes" if facts.state else "-",
        ", ".join(facts.needs) or "-",
    )


_NEEDS = {
    "rows": "they are not here yet; `gymq collect --benchmark NAME` or `gymq data prepare NAME` makes or fetches them",
    "judge": "a model that judges answers: --judge-url and --judge-model, or the policy",
    "sandbox": "isolation for programs of the model, such as namespaces; docs/sandbox.md says how it is set up",
    "network": "its environment asks a service on the internet",
}


class BenchmarkFacts(msgspec.Struct, omit_defaults=True):
    """The facts about one benchmark.

    Attributes:
        needs: `judge`, `sandbox`, `network` and so on, as its environment declares; `rows`: they have to be prepared.
        problem: why it cannot be run here.
    """

    name: str
    environment: str = ""
    agent: str = ""
    num_repeats: int = 1
    needs: list[str] = []
    problem: str | None = None


def benchmark_facts(benchmark: Benchmark) -> BenchmarkFacts:
    """Return the facts about a benchmark; one whose configuration does not load has a `problem`."""
    policy = {POLICY: {"responses_api_models": {SIMULATED_MODEL: {"entrypoint": "worker.py"}}}}
    root = benchmark.root.absolute()
    try:
        config = load([benchmark.config.absolute()], initial=policy, extra_roots=[root])
        blocks = [block for block in dataset_blocks(config, [root]) if block.kind == BENCHMARK]
    except ConfigError as error:
        return BenchmarkFacts(benchmark.name, problem=str(error))
    if not blocks:
        return BenchmarkFacts(benchmark.name, problem="it has no data set of the type benchmark")
    block = blocks[0]
    agent = config.instance(block.agent)
    reference = agent.options.get("resources_server") or {}
    facts = [describe_worker("agents", agent.implementation)]
    environment = ""
    if reference:
        environment = config.instance(reference["name"]).implementation
        facts.append(describe_worker("resources", environment))
    problems = [one.problem for one in facts if one.problem]
    needs = {need for one in facts for need in one.needs} | (set() if block.rows().is_file() else {"rows"})
    return BenchmarkFacts(
        benchmark.name,
        environment,
        agent.implementation,
        block.num_repeats,
        sorted(needs),
        problems[0] if problems else None,
    )


def print_benchmarks(search: Sequence[Path], console: Console, *, as_json: bool) -> None:
    """Print the benchmarks and what each needs."""
    found = [benchmark_facts(benchmark) for benchmark in benchmarks(search)]
    if as_json:
        for facts in found:
            print(msgspec.json.encode(facts).decode())
        return
    if not found:
        console.print("no benchmarks: --search-dir names a folder with `benchmarks`, such as a clone of NeMo Gym")
        return
    ready = [facts for facts in found if not facts.problem]
    others = [facts for facts in found if facts.problem]
    if ready:
        legend = [f"{need}: {_NEEDS[need]}" for need in _NEEDS if any(need in facts.needs for facts in ready)]
        caption = "\n".join(["repeats: rollouts of each row", *legend])
        table = listing("", "benchmark", "environment", "repeats", "needs", numbers=("repeats",), caption=caption)
        for facts in ready:
            needs = ", ".join(facts.needs) or "-"
            table.add_row(facts.name, facts.environment, str(facts.num_repeats), printable(needs))
        console.print(table)
    if ready and others:
        console.print()
    if others:
        table = listing("", "cannot run here", "why")
        for facts in others:
            table.add_row(facts.name, _short(facts.problem or ""))
        console.print(table)


def _short(problem: str) -> Text:
    """Return a problem without the path to its key and without places in files; --json has all of it."""
    words = problem.partition(": no folder")[0].partition(" (")[0].split(" ")
    return first_words(" ".join(word.rpartition(".")[2] if word.endswith(":") else word for word in words), 90)
