"""The dashboards of the compose file ask for what there is."""

import json
import re
from pathlib import Path

import pytest

from gymq.ext.shared.cluster_state import Overview, QueueState, WorkerState
from gymq.ext.shared.run_overview import RunOverview
from gymq.stats.running import RunningProfile

pytest.importorskip("prometheus_client", reason="pip install 'gymq[observability]'")

COMPOSE = Path(__file__).parents[3] / "deploy" / "compose"
EXPRESSIONS = [
    (panel["title"], target["expr"], target["legendFormat"])
    for file in sorted(COMPOSE.glob("grafana-*.json"))
    for panel in json.loads(file.read_text())["panels"]
    for target in panel["targets"]
    if "gymq_" in target["expr"]
]


@pytest.fixture(scope="module")
def labels_of() -> dict[str, set[str]]:
    """The labels of each metric of a cluster that has some of everything."""
    from gymq.ext.nemo_gym.metrics import families

    profile = RunningProfile()
    profile.add("asker", 0, 0, reward=1.0, numbers={"input_tokens": 1, "output_tokens": 1})
    profile.add_failure("asker", 0, 1, failure_class="model_failed", final=True)
    run = RunOverview(
        run="r",
        created_at=0.0,
        updated_at=0.0,
        num_rollouts=1,
        num_rewarded=1,
        failures={},
        mean_reward=1.0,
        models=[],
        agents=profile.snapshot().agents,
        environments={"asker": "asker"},
    )
    found = Overview(
        at=0.0,
        num_outcomes=1,
        num_stored=1,
        num_dead_letters=0,
        queues=[QueueState("TASKS", "agents_asker", "asker", False, 0, 0, 0)],
        workers=[WorkerState("counter", "resources", "counter", "w-1", 1.0, 0, 0, 0, 0)],
        runs=[run],
        num_runs=1,
    )
    return {sample.name: set(sample.labels) for family in families(found) for sample in family.samples}


def test_there_is_a_dashboard_of_what_gymq_tells() -> None:
    assert len(EXPRESSIONS) >= 10


@pytest.mark.parametrize(("title", "expression", "legend"), EXPRESSIONS, ids=[title for title, *_ in EXPRESSIONS])
def test_a_panel_asks_for_a_metric_and_labels_that_there_are(
    labels_of: dict[str, set[str]], title: str, expression: str, legend: str
) -> None:
    (metric,) = set(re.findall(r"gymq_\w+", expression))
    assert metric in labels_of, title
    grouped = re.search(r"\bby \(([^)]*)\)", expression)
    kept = labels_of[metric] if grouped is None else {label.strip() for label in grouped[1].split(",")}
    assert kept <= labels_of[metric]
    assert set(re.findall(r"{{(\w+)}}", legend)) <= kept
