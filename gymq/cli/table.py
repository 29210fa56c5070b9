"""Statistics of a run as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gymq.cli.listing import listing, whole_width
from gymq.cli.printable import printable
from gymq.running import PASS_THRESHOLD, AgentSnapshot, Estimate, ProfileSnapshot

KS = (1, 4, 16)
STAND_INS = ("simulated_model", "replay_model")


def profile_table(
    snapshot: ProfileSnapshot,
    *,
    run: str,
    models: Sequence[str] = (),
    ks: Sequence[int] | None = None,
    threshold: float = PASS_THRESHOLD,
) -> Table:
    """Show the mean reward and pass@k of each agent, with 95 % intervals.

    Args:
        models: what answered as the policy; a stand-in is called one in the header.
        ks: the k's to show; default: 1, 4, 16 as far as there are so many rollouts of a task, and the largest.
        threshold: the smallest reward with which a rollout passes.
    """
    policy = ", ".join(models) or "not known"
    stand_in = ", [bold]a stand-in, not a trained model[/bold]" if any(name in policy for name in STAND_INS) else ""
    shown = _default_ks(snapshot) if ks is None else ks
    numbers = ("mean reward", *(f"pass@{k}" for k in shown), "tasks", "rollouts", "failed")
    table = listing(
        f"run {escape(run)}\npolicy: {escape(policy)}{stand_in}\n",
        "environment (agent)",
        *numbers,
        numbers=numbers,
        caption=f"pass@k in %: a rollout passes with a reward of {threshold:g} or more; with 95 % intervals",
    )
    table.columns[0].no_wrap = True
    for name, agent in snapshot.agents.items():
        failed = sum(agent.failures.values())
        rates = [_shown(agent.pass_at_k.get(k), ".1f") for k in shown]
        counts = (f"{agent.tasks:,}", f"{agent.rollouts:,}", f"{failed:,}" if failed else "-")
        table.add_row(printable(name), _shown(agent.mean_reward, ".3g"), *rates, *counts)
    return table


def print_profile(console: Console, table: Table) -> None:
    """Print what `profile_table` made; on a terminal that is too narrow for it, the same figures as a list."""
    needed = max(whole_width(console, table), len(str(table.caption)))
    if needed <= console.width or not console.is_terminal:
        console.width = max(needed, console.width)  # `print` itself takes no more than the console has
        console.print(table)
        return
    headings = [str(column.header) for column in table.columns]
    console.print(table.title, table.caption, "", sep="\n", highlight=False)
    for name, *cells in zip(*(column.cells for column in table.columns), strict=True):
        console.print(name, soft_wrap=True, highlight=False)
        for heading, cell in zip(headings[1:], cells, strict=True):
            console.print(f"  {heading:12} {str(cell).replace(chr(10), '   ')}", soft_wrap=True, highlight=False)


def member_table(name: str, agent: AgentSnapshot) -> Table:
    """Mean, deviation and range of the reward and of every other number that the rollouts of an agent have."""
    numbers = ("rollouts", "mean", "std", "min", "median", "max")
    caption = f"{agent.members_left_out} values of further members are left out" if agent.members_left_out else None
    table = listing(f"numbers of {escape(name)}", "member", *numbers, numbers=numbers, caption=caption)
    for member, stats in agent.members.items():
        cells = (stats.mean, stats.std, stats.min, stats.median, stats.max)
        table.add_row(printable(member), f"{stats.count:,}", *(_number(value) for value in cells))
    return table


def rate_table(name: str, agent: AgentSnapshot, ks: Sequence[int] | None = None) -> Table:
    """pass@k, the mean of the first k, and the majority where the rollouts have answers."""
    has_majority = bool(agent.majority_at_k)
    numbers = ("pass@k", "interval", "avg of k", *(["majority@k"] if has_majority else []))
    caption = None if agent.no_answer is None else f"{agent.no_answer:.1f} % of the rollouts have no answer"
    table = listing(f"rates of {escape(name)}, in %", "k", *numbers, numbers=numbers, caption=caption)
    for k in sorted(agent.pass_at_k) if ks is None else ks:
        estimate = agent.pass_at_k.get(k)
        interval = None if estimate is None else estimate.interval
        table.add_row(
            f"{k}",
            _rate(None if estimate is None else estimate.value),
            "-" if interval is None else f"{interval.low:.1f}-{interval.high:.1f}",
            _rate(agent.avg_of_k.get(k)),
            *([_rate(agent.majority_at_k.get(k))] if has_majority else []),
        )
    return table


def _default_ks(snapshot: ProfileSnapshot) -> list[int]:
    largest = max((agent.max_k for agent in snapshot.agents.values()), default=0)
    return sorted({k for k in KS if k <= largest} | ({largest} if 0 < largest <= KS[-1] else set()))


def _shown(estimate: Estimate | None, form: str) -> str:
    if estimate is None:
        return "-"
    if estimate.interval is None:
        return f"{estimate.value:{form}}"
    low, high = estimate.interval.low, estimate.interval.high
    return f"{estimate.value:{form}}\n[dim]{low:{form}} to {high:{form}}[/dim]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.6g}"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
