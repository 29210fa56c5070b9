"""A row that kills whoever works on it costs only itself."""

from pathlib import Path

from gymq.host import InstanceSpec
from gymq.messages import Failure, FailureClass, Outcome, Rollout

from .lab import WORKERS, running
from .rows import row
from .scenario import agent_spec

PLAIN = InstanceSpec("plain", "resources", str(WORKERS / "plain.py"))


def rewards(outcomes: list[Outcome]) -> list[float | None]:
    return [outcome.reward if isinstance(outcome, Rollout) else None for outcome in outcomes]


async def test_a_row_that_kills_its_agent_costs_no_other_row(tmp_path: Path) -> None:
    fragile = agent_spec("fragile", "plain", str(WORKERS / "fragile_agent.py"))
    rows = [row("fragile", str(number), latencies_s=[1.0]) for number in range(20)]
    rows.insert(10, row("fragile", "poison", kills="agent"))
    async with running(tmp_path, [PLAIN, fragile], ack_wait_s=1.0) as lab:
        outcomes = await lab.collect("poison", rows, rollout_timeout_s=120.0)
    poison = outcomes.pop(10)
    assert isinstance(poison, Failure), poison
    assert poison.failure_class is FailureClass.REDELIVERED_TOO_OFTEN
    assert rewards(outcomes) == [1.0] * 20
