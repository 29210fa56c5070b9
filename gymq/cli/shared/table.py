"""Runs and their statistics as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from gymq.defaults import PASS_THRESHOLD
from gymq.render import Listing, listing, printable, shown_count, shown_environments, shown_number, shown_time
from gymq.runs.stored_runs import RunProgress
from gymq.stats.intervals import Estimate
from gymq.stats.running import AgentSnapshot, ProfileSnapshot

KS = (1, 4, 16)
NOT_TRAINED = ("simulated_model", "replay_model")


def run_table(runs: Sequence[RunProgress], *, num_runs: int) -> Listing:
    """Return a table of the runs, whose caption says how many more there are."""
    caption = f"the newest {len(runs)} of {num_runs} runs" if num_runs > len(runs) else None
    numbers = ("finished", "failed", "reward")
    table = listing("runs", "run", "started", *numbers, "policy", numbers=numbers, names=("started",), caption=caption)
    for run in runs:
        finished = f"{run.num_stored:,}"
        table.add_row(
            run.run,
            shown_time(run.created_at),
            (finished if run.num_rollouts is None else f"{finished} of {run.num_rollouts:,}")
            + (", cancelled" if run.cancelled else ", paused" if run.paused else ""),
            shown_count(run.num_failures),
            shown_number(run.mean_reward),
            printable(", ".join(run.models) or "-"),
        )
    return table


def profile_table(
    snapshot: ProfileSnapshot,
    *,
    run: str,
    models: Sequence[str] = (),
    ks: Sequence[int] | None = None,
    threshold: float = PASS_THRESHOLD,
) -> Listing:
    """Show the mean reward and pass@k of each agent, with 95 % intervals.

    Args:
        models: what answered as the policy; the header says if that is not a trained model.
        ks: the k's to show; default: 1, 4, 16 as far as there are so many rollouts of a task, and the largest.
        threshold: the smallest reward with which a rollout passes.
    """
    policy = ", ".join(models) or "not known"
    title = Text.assemble((f"run {run}\npolicy: {policy}", "italic"))
    if any(name in policy for name in NOT_TRAINED):
        title.append(", ").append("not a trained model", "bold")
    shown = _default_ks(snapshot) if ks is None else ks
    numbers = ("mean reward", *(f"pass@{k}" for k in shown), "tasks", "rollouts", "failed")
    has_failed = any(agent.failures for agent in snapshot.agents.values())
    rule = f"pass@k in %: a rollout passes with a reward of {threshold:g} or more; with 95 % intervals"
    table = listing(
        title.append("\n"),
        "environment (agent)",
        *numbers,
        numbers=numbers,
        spare=[*([] if has_failed else ["failed"]), "tasks", *(f"pass@{k}" for k in shown[1:-1])],
        caption=rule if shown else None,
    )
    names = shown_environments(snapshot.agents)
    for name, agent in snapshot.agents.items():
        failed = sum(agent.failures.values())
        rates = [_shown(agent.pass_at_k.get(k), ".1f") for k in shown]
        counts = (f"{agent.tasks:,}", f"{agent.rollouts:,}", shown_count(failed))
        table.add_row(printable(names[name]), _shown(agent.mean_reward, ".3f"), *rates, *counts)
    return table


def field_table(name: str, agent: AgentSnapshot) -> Listing:
    """Return a table with mean, deviation and range of the reward and of each other number of an agent's rollouts."""
    numbers = ("rollouts", "mean", "std", "min", "median", "max")
    caption = f"{agent.fields_left_out} values of further fields are left out" if agent.fields_left_out else None
    table = listing(f"fields of {name}", "field", *numbers, numbers=numbers, caption=caption)
    for field, stats in agent.fields.items():
        cells = (stats.mean, stats.std, stats.min, stats.median, stats.max)
        table.add_row(printable(field), f"{stats.count:,}", *(shown_number(value, ",.6g") for value in cells))
    return table


def rate_table(name: str, agent: AgentSnapshot, ks: Sequence[int] | None = None) -> Listing:
    """Return a table with pass@k, the mean of the first k, and the majority where the rollouts have answers."""
    has_majority = bool(agent.majority_at_k)
    numbers = ("pass@k", "interval", "avg of k", *(["majority@k"] if has_majority else []))
    lines = ["avg of k: mean reward of the first k rollouts of each task"]
    if has_majority:
        lines.append("majority@k: mean reward of the answer that most of the first k rollouts give")
    if agent.no_answer is not None:
        lines.append(f"{agent.no_answer:.1f} % of the rollouts have no answer")
    table = listing(f"pass@k of {name} (%)", "k", *numbers, numbers=numbers, caption="\n".join(lines))
    for k in sorted(agent.pass_at_k) if ks is None else ks:
        estimate = agent.pass_at_k.get(k)
        interval = None if estimate is None else estimate.interval
        table.add_row(
            f"{k}",
            shown_number(None if estimate is None else estimate.value, ".1f"),
            "-" if interval is None else f"{interval.low:.1f} to {interval.high:.1f}",
            shown_number(agent.avg_of_k.get(k), ".1f"),
            *([shown_number(agent.majority_at_k.get(k), ".1f")] if has_majority else []),
        )
    return table


def _default_ks(snapshot: ProfileSnapshot) -> list[int]:
    largest = max((agent.max_k for agent in snapshot.agents.values()), default=0)
    return sorted({k for k in KS if k <= largest} | ({largest} if 0 < largest <= KS[-1] else set()))


def _shown(estimate: Estimate | None, form: str) -> Text:
    if estimate is None:
        return Text("-")
    shown = Text(f"{estimate.value:{form}}")
    if estimate.interval is not None:
        low, high = estimate.interval.low, estimate.interval.high
        shown.append(f"\n{low:{form}} to {high:{form}}", "dim")
    return shown
