"""Trainers, agents, engines, environments, NATS are killed and frozen: each update gets its rollouts, none is wasted.

`make test-in NAME=trainers` does the same with 20 seeds.
"""

import os
from pathlib import Path

import pytest

from .trainings import Trained, train

FURTHER = [
    *(pytest.param("own", seed, marks=pytest.mark.nightly) for seed in (2, 3)),
    *(pytest.param(loop, seed, marks=pytest.mark.nightly) for loop in ("trl", "skyrl") for seed in (1, 2, 3)),
]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("loop", "seed"), [("own", 1), *FURTHER, ("verl", 1)])
async def test_whatever_dies_each_update_is_made_with_its_rollouts(loop: str, seed: int, tmp_path: Path) -> None:
    if loop == "verl" and "GYMQ_GENERATORS_PYTHON" not in os.environ:
        pytest.skip("GYMQ_GENERATORS_PYTHON names no Python with verl; `make test-in NAME=trainers` sets it")
    trained, faults = await train(seed, loop, tmp_path / "training")
    print(trained, faults)
    assert faults
    assert trained.is_kept, trained


def test_a_loss_a_wrong_reward_and_a_waste_are_noticed() -> None:
    kept = {"needed": 100, "stored": 100, "failed": 0, "wrong": 0, "starts": 1, "calls": 100, "needed_calls": 100}
    assert Trained("own", **kept).is_kept
    for broken in ({"stored": 99}, {"stored": 101}, {"wrong": 1}, {"failed": 1}):
        assert not Trained("own", **kept | broken).is_kept
