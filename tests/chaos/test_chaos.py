"""Processes are killed and frozen all the time while rollouts are made: every promise is kept, whatever the seed.

`python -m tests.chaos` does the same with any number of seeds.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from gymq.protocol.messages import VerifiedRollout
from tests.releases.later import release

from .experiment import NoFaults, Releases, run
from .promises import judge
from .scenario import Scenario

QUARTER = Scenario(1, single=500, stateful=72)


@pytest.mark.parametrize("scenario", [QUARTER, *(pytest.param(Scenario(n), marks=pytest.mark.nightly) for n in (2, 3))])
async def test_whatever_dies_every_promise_is_kept(scenario: Scenario, tmp_path: Path) -> None:
    verdict = judge(scenario, await run(scenario, tmp_path / "run"))
    print(f"{scenario}: {verdict}")
    assert verdict.faults
    assert verdict.kept, verdict


@pytest.mark.parametrize(
    "order", ["this, then the later one", pytest.param("the later one, then this", marks=pytest.mark.nightly)]
)
async def test_processes_of_two_releases_keep_every_promise(
    order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "")  # put back at the end
    later = release(tmp_path / "later", "oldest=1, newest=2")
    releases = Releases(None, later) if order.startswith("this") else Releases(later, None)
    scenario = Scenario(1, single=200, stateful=80, turns=24)
    verdict = judge(scenario, await run(scenario, tmp_path / "run", install=releases.install_next))
    print(f"{order}: {verdict}")
    assert 0 < verdict.of_later < verdict.started
    assert verdict.kept, verdict


async def test_without_faults_the_rewards_are_those_that_are_expected_and_no_call_is_made_twice(tmp_path: Path) -> None:
    scenario = Scenario(1, single=200, stateful=40)
    verdict = judge(scenario, await run(scenario, tmp_path / "run", injector=NoFaults()))
    assert verdict.kept, verdict
    assert verdict.repeated == 0
    assert not verdict.failures


async def test_a_promise_that_is_broken_is_noticed(tmp_path: Path) -> None:
    scenario = Scenario(1, single=20, stateful=8)
    remains = await run(scenario, tmp_path / "run", injector=NoFaults())
    lost, doubled = remains.outcomes.pop(), remains.rewards[0]
    remains.rewards.append(doubled)
    remains.rewards[1] = (remains.rewards[1][0], 17.0)
    remains.tools[next(iter(remains.tools))] += 1
    remains.calls.append(remains.calls[0])
    outcome = remains.outcomes[0]
    assert isinstance(outcome, VerifiedRollout)
    outcome.response["output"][0]["generation_token_ids"][0] += 1
    verdict = judge(scenario, remains)
    assert lost is not None
    assert not verdict.kept
    counts = (verdict.lost, verdict.doubled, verdict.wrong, verdict.executed_twice, verdict.repeated)
    assert counts == (1, 1, 1, 1, 1)
    assert verdict.wrong_tokens == 1
    assert verdict.unexplained == 1
    last = remains.calls[-1].begin
    stateful = next(call.rollout for call in remains.calls if call.turn and call.rollout != remains.calls[0].rollout)
    again = [replace(call, begin=last + call.begin) for call in remains.calls if call.rollout == stateful]
    remains.calls += again
    assert judge(scenario, remains).unexplained == 1 + len(again)
    remains.failures.append((stateful, "redelivered_too_often at queue"))  # the collector tried it again
    assert judge(scenario, remains).unexplained == 1
