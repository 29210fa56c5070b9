"""Runs and their statistics as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from gymq.render import (
    Listing,
    listing,
    printable,
    shown_count,
    shown_environments,
)
from gymq.stats.intervals import Estimate
from gymq.stats.running import AgentSnapshot, ProfileSnapshot

KS = (1, 4, 16)
NOT_TRAINED = ("simulated_model", "replay_model")


def profile_table(
    snapshot: ProfileSnapshot,
    *,
    run: str,
    models: Sequence[str] = (),
    ks: Sequence[int] | None = None,
) -> Listing:
    """Show the mean reward and pass@k of each agent and of all together, with 95 % intervals.

    Args:
        models: what answered as the policy; the header says if that is not a trained model.
        ks: the k's to show; default: of 1, 4, 16 and the largest, those that all tasks of an agent have rewards for.
    """
    policy = ", ".join(models) or "not known"
    title = Text.assemble((f"run {run}\npolicy: {policy}", "italic"))
    if any(name in policy for name in NOT_TRAINED):
        title.append(", ").append("not a trained model", "bold")
    shown, left_out = _default_ks(snapshot) if ks is None else (ks, [])
    rates = [f"pass@{k}" for k in shown]
    numbers = ("mean reward", *rates, "tasks", "rollouts", "failed")
    table = listing(
        title.append("\n"),
        "environment (agent)",
        *numbers,
        numbers=numbers,
        spare=[*rates[1:-1], *rates[1:][-1:], "tasks", *rates[:1], "rollouts"],
        caption="\n".join(_rules(snapshot, shown, left_out)) or None,
    )
    names = shown_environments(snapshot.agents)
    rows = [(printable(names[name]), agent) for name, agent in snapshot.agents.items()]
    if len(rows) > 1 and snapshot.all is not None:
        rows.append((Text("all", "bold"), snapshot.all))
    for name, agent in rows:
        estimates = agent.pass_at_k_of_all() if ks is None else agent.pass_at_k
        table.add_row(
            name,
            _mean_reward(agent),
            *(_shown(estimates.get(k), ".1f", of=agent.tasks) for k in shown),
            f"{agent.tasks:,}",
            f"{agent.rollouts:,} of {agent.rollouts + agent.num_failed:,}" if agent.failures else f"{agent.rollouts:,}",
            Text(shown_count(agent.num_failed), "red" if agent.failures else ""),
        )
    return table


def _rules(snapshot: ProfileSnapshot, shown: Sequence[int], left_out: Sequence[int]) -> Iterator[str]:
    """Yield what the numbers of a table mean."""
    if len(snapshot.agents) > 1:
        yield "all: means over the tasks of all environments"
    if any(agent.failures for agent in snapshot.agents.values()):
        yield "mean of the rollouts that have a reward; ≥: with the failed ones as 0"
    if shown:
        yield f"pass@k in %: a rollout passes with a reward of {snapshot.pass_threshold:g} or more; with 95 % intervals"
    for k in left_out[:1]:
        yield f"pass@{k} is left out: not every task has {k} rewards"


def _default_ks(snapshot: ProfileSnapshot) -> tuple[list[int], list[int]]:
    """Return the k's to show, and those that only some tasks have rewards for."""
    largest = max((agent.max_k for agent in snapshot.agents.values()), default=0)
    common = {k for agent in snapshot.agents.values() for k in agent.pass_at_k_of_all() if k <= KS[-1]}
    wanted = {k for k in (*KS, largest) if k <= min(largest, KS[-1])} - {0}
    shown = wanted & common | {max(common, default=1)} & common
    return sorted(shown), sorted(wanted - common)


def _mean_reward(agent: AgentSnapshot) -> Text:
    shown = _shown(agent.mean_reward, ".3f")
    return shown if agent.lower_bound is None else shown.append(f"\n≥ {agent.lower_bound:.3f}", "red")


def _shown(estimate: Estimate | None, form: str, of: int = 0) -> Text:
    """Return an estimate over its interval, and below how many `of` the tasks it is about, if not all."""
    if estimate is None:
        return Text("-")
    shown = Text(f"{estimate.value:{form}}")
    if estimate.interval is not None:
        low, high = estimate.interval.low, estimate.interval.high
        shown.append(f"\n{low:{form}} to {high:{form}}", "dim")
    return shown.append(f"\n{estimate.tasks:,} of {of:,} tasks", "dim") if estimate.tasks < of else shown
