"""The distributions behind the simulated policy."""

from __future__ import annotations

import math

import pytest
from gymq.workers.models.simulated_model.chance import Chance, exponential, lognormal, skill_of_task, uniforms

DRAWS = [value for index in range(5000) for value in uniforms(Chance(1).digest(b"%d" % index))]


def test_uniforms_fill_the_open_unit_interval_evenly() -> None:
    assert all(0.0 < value < 1.0 for value in DRAWS)
    for tenth in range(10):
        share = sum(tenth / 10 <= value < (tenth + 1) / 10 for value in DRAWS) / len(DRAWS)
        assert share == pytest.approx(0.1, abs=0.01)


def test_the_border_digests_stay_inside_the_interval() -> None:
    assert 0.0 < uniforms(bytes(64))[0] < uniforms(b"\xff" * 64)[0] < 1.0


def test_names_are_kept_apart() -> None:
    chance = Chance(0)
    assert chance.digest(b"ab", b"c") != chance.digest(b"a", b"bc")
    assert Chance(1).digest(b"a") != Chance(2).digest(b"a")


def test_exponential_has_its_mean_and_deviation() -> None:
    values = [exponential(3.0, value) for value in DRAWS]
    mean = sum(values) / len(values)
    assert mean == pytest.approx(3.0, rel=0.03)
    assert math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) == pytest.approx(3.0, rel=0.05)


def test_lognormal_has_its_mean() -> None:
    values = [lognormal(3.0, value) for value in DRAWS]
    assert sum(values) / len(values) == pytest.approx(3.0, rel=0.03)


@pytest.mark.parametrize(("mean", "spread"), [(0.5, 0.3), (0.2, 0.6), (0.9, 0.5)])
def test_skills_of_tasks_have_the_mean_and_deviation_of_the_options(mean: float, spread: float) -> None:
    skills = [skill_of_task(mean, spread, Chance(0).digest(b"%d" % index)) for index in range(5000)]
    average = sum(skills) / len(skills)
    deviation = math.sqrt(sum((skill - average) ** 2 for skill in skills) / len(skills))
    assert average == pytest.approx(mean, abs=0.03)
    assert deviation == pytest.approx(spread * math.sqrt(mean * (1 - mean)), rel=0.08)


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_a_policy_that_knows_all_or_nothing_has_no_spread(mean: float) -> None:
    assert skill_of_task(mean, 0.9, bytes(64)) == mean
