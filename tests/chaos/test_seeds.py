"""The test that hurts: a process killed or frozen every second, the server and the collector among them.

`make chaos SEEDS=50` does the same with all rollouts of a seed; here there are fewer, so that three seeds take a few
minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .experiment import NoHarm, run
from .promises import judge
from .scenario import Scenario

SINGLE = 400
STATEFUL = 48


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_rollout_is_lost_doubled_wrong_or_paid_for_twice(seed: int, tmp_path: Path) -> None:
    scenario = Scenario(seed, SINGLE, STATEFUL)
    verdict = judge(scenario, await run(scenario, tmp_path))
    print(verdict)
    assert verdict.kept, str(verdict)
    assert sum(verdict.faults.values()) > 0


async def test_the_same_seed_without_faults_gives_the_expected_rewards(tmp_path: Path) -> None:
    scenario = Scenario(1, SINGLE, STATEFUL)
    verdict = judge(scenario, await run(scenario, tmp_path, harm=NoHarm()))
    assert verdict.kept, str(verdict)
    assert verdict.repeated == 0
