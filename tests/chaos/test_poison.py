"""A row that kills whoever works on it costs only itself."""

from pathlib import Path

import pytest

from gymq.host import InstanceSpec
from gymq.messages import Failure, FailureClass, Outcome, Rollout, Unresolved

from .lab import WORKERS, environment, running
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


@pytest.mark.parametrize("kills", ["tool", "verify"])
@pytest.mark.parametrize("implementation", ["Replayable", "Restarting"])
async def test_a_row_that_kills_its_session_costs_no_other_row(tmp_path: Path, implementation: str, kills: str) -> None:
    instances = [
        environment("chain", f"chain.py:{implementation}", tmp_path, num_workers=2),
        agent_spec("solver", "chain"),
    ]
    rows = [row("solver", str(number), values=[1, 2, 3, 4], latencies_s=[0.5]) for number in range(20)]
    rows.insert(10, row("solver", "poison", values=[1, 2, 3, 4], kills=kills))
    async with running(tmp_path, instances) as lab:
        outcomes = await lab.collect("poison", rows, rollout_timeout_s=120.0)
    poison = outcomes.pop(10)
    assert isinstance(poison, Failure | Unresolved), poison
    assert poison.failure_class in (FailureClass.SESSION_LOST, FailureClass.WORKER_LOST)
    assert rewards(outcomes) == [1.0] * 20


async def test_a_row_that_kills_its_verifier_costs_no_other_row(tmp_path: Path) -> None:
    rows = [row("solver", str(number), verify_s=1.0) for number in range(20)]
    rows.insert(10, row("solver", "poison", kills="verify"))
    async with running(tmp_path, [PLAIN, agent_spec("solver", "plain")]) as lab:
        outcomes = await lab.collect("poison", rows, rollout_timeout_s=120.0)
    poison = outcomes.pop(10)
    assert isinstance(poison, Unresolved), poison
    assert poison.failure_class is FailureClass.WORKER_LOST
    assert rewards(outcomes) == [1.0] * 20


async def test_a_row_that_kills_its_model_costs_no_other_row(tmp_path: Path) -> None:
    rows = [row("solver", str(number), latencies_s=[1.0]) for number in range(20)]
    rows.insert(10, row("solver", "poison", kills="model"))
    async with running(tmp_path, [PLAIN, agent_spec("solver", "plain")]) as lab:
        outcomes = await lab.collect("poison", rows, rollout_timeout_s=120.0)
    poison = outcomes.pop(10)
    assert isinstance(poison, Failure), poison
    assert poison.failure_class is FailureClass.WORKER_LOST
    assert rewards(outcomes) == [1.0] * 20
