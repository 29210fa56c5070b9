"""Statistics of a run as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from gymq.running import AgentSnapshot, Estimate, ProfileSnapshot

KS = (1, 4, 16)
STAND_INS = ("simulated_model", "replay_model")


def profile_table(
    snapshot: ProfileSnapshot, *, run: str, models: Sequence[str] = (), console: Console | None = None
) -> None:
    """Print pass@k with 95 % intervals for each agent.

    Args:
        models: what answered as the policy; a stand-in is called one in the header.
    """
    console = console or Console()
    policy = ", ".join(models) or "unknown policy"
    if any(stand_in in policy for stand_in in STAND_INS):
        policy += " [bold]a stand-in, not a trained model[/bold]"
    ks = [k for k in KS if any(k in agent.pass_at_k for agent in snapshot.agents.values())]
    table = Table(title=f"run {run}, policy: {policy}", title_justify="left", caption_justify="left")
    table.caption = "pass@k in %, with 95 % intervals over tasks"
    table.add_column("environment (agent)")
    for heading in ("tasks", "rollouts", "failed"):
        table.add_column(heading, justify="right")
    for k in ks:
        table.add_column(f"pass@{k}", justify="right")
    for name, agent in snapshot.agents.items():
        failed = sum(agent.failures.values())
        cells = [_shown(agent, k) for k in ks]
        table.add_row(name, f"{agent.tasks:,}", f"{agent.rollouts:,}", f"{failed:,}" if failed else "-", *cells)
    console.print(table)


def _shown(agent: AgentSnapshot, k: int) -> str:
    estimate: Estimate | None = agent.pass_at_k.get(k)
    if estimate is None:
        return "-"
    if estimate.interval is None:
        return f"{estimate.value:.1f}"
    return f"{estimate.value:.1f} [{estimate.interval.low:.1f}, {estimate.interval.high:.1f}]"
