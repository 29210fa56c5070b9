"""A row that kills every process that works on it costs only itself."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gymq.protocol.instances import Instance
from gymq.protocol.messages import Failure, FailureClass, Outcome, Unresolved, VerifiedRollout

from .rows import row
from .running_cluster import WORKERS, environment, running
from .scenario import agent_spec

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.nightly]

NUM_ROWS = 20
PLAIN = Instance("plain", "resources", str(WORKERS / "plain.py"))
SOLVER = agent_spec("solver", "plain")


async def poisoned(folder: Path, workers: Iterable[Instance], kills: str, **script: Any) -> list[Outcome]:
    """The outcomes of twenty harmless rows, and behind them that of one in their midst that kills."""
    rows = [row("solver", str(number), **script) for number in range(NUM_ROWS)]
    rows.insert(NUM_ROWS // 2, row("solver", "poison", **script, kills=kills))
    async with running(folder, workers, ack_wait_s=2.0) as cluster:
        outcomes = await cluster.collect("poison", rows, rollout_timeout_s=240.0)
    outcomes.append(outcomes.pop(NUM_ROWS // 2))
    return outcomes


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    """Of all cases; at once, since most of the time is spent waiting for processes that start again."""
    base = tmp_path_factory.mktemp("poison")
    for name in ("agent", "model", "verifier", "tool1", "tool2", "verify"):
        (base / name).mkdir()
    turns: dict[str, Any] = {"values": [1, 2, 3, 4], "latencies_s": [0.5]}

    def chain(folder: str, implementation: str) -> list[Instance]:
        return [
            environment("chain", f"chain.py:{implementation}", base / folder, num_workers=2),
            agent_spec("solver", "chain"),
        ]

    fragile = agent_spec("solver", "plain", str(WORKERS / "fragile_agent.py"))
    cases = {
        "agent": poisoned(base / "agent", [PLAIN, fragile], "agent", latencies_s=[1.0]),
        "model": poisoned(base / "model", [PLAIN, SOLVER], "model", latencies_s=[1.0]),
        "verifier": poisoned(base / "verifier", [PLAIN, SOLVER], "verify", verify_s=1.0),
        "tool, replayable": poisoned(base / "tool1", chain("tool1", "Replayable"), "tool", **turns),
        "tool": poisoned(base / "tool2", chain("tool2", "Restarting"), "tool", **turns),
        "verifier of a session": poisoned(base / "verify", chain("verify", "Restarting"), "verify", **turns),
    }
    return dict(zip(cases, await asyncio.gather(*cases.values()), strict=True))


CASES = {
    "agent": (Failure, FailureClass.REDELIVERED_TOO_OFTEN),
    "model": (Failure, FailureClass.WORKER_LOST),
    "verifier": (Unresolved, FailureClass.WORKER_LOST),
    "tool, replayable": (Failure, FailureClass.WORKER_LOST),
    "tool": (Failure, FailureClass.WORKER_LOST),
    "verifier of a session": (Failure, FailureClass.WORKER_LOST),
}


@pytest.mark.parametrize("case", CASES)
async def test_the_rows_beside_it_get_their_rewards(outcomes: dict[str, list[Outcome]], case: str) -> None:
    innocent = outcomes[case][:-1]
    assert [outcome.reward if isinstance(outcome, VerifiedRollout) else outcome for outcome in innocent] == [
        1.0
    ] * NUM_ROWS


@pytest.mark.parametrize("case", CASES)
async def test_it_ends_as_a_failure_that_another_start_may_try_again(
    outcomes: dict[str, list[Outcome]], case: str
) -> None:
    poison = outcomes[case][-1]
    assert isinstance(poison, Failure | Unresolved)
    assert (type(poison), poison.failure_class) == CASES[case]
    if poison.failure_class is FailureClass.WORKER_LOST:
        assert "its process ended" in poison.message
    assert poison.retryable
