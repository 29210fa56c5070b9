"""Things that go wrong at model and verifier: each ends as a failure that says what it was, none as zero."""

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import pytest_asyncio

from gymq.protocol.instances import Instance
from gymq.protocol.messages import Failure, FailureClass, Outcome, Stage, Unresolved, VerifiedRollout
from gymq.runs.collection.failure_limit import MaxFailures

from .faulty_endpoint import ANSWERS, endpoint
from .rows import row
from .running_cluster import WORKERS, RunningCluster, running
from .scenario import agent_spec
from .workers import faulty_policy, faulty_verifier

pytestmark = pytest.mark.asyncio(loop_scope="module")

Times = dict[str, int]
"""How often each fault is met, by agent: a verifier that dies costs the start of a process."""

FEW: Times = {"of_policy": 3, "of_endpoint": 3, "on_loop": 3, "in_process": 1}
A_THOUSAND: Times = {"of_policy": 16, "of_endpoint": 16, "on_loop": 17, "in_process": 3}
# How long a rollout may take: what hangs takes all the time there is.
TIMEOUT_S = {"of_policy": 40.0, "of_endpoint": 40.0, "on_loop": 40.0, "in_process": 300.0}
ANY_NUMBER = MaxFailures(math.inf)
NOT_FAULTS = 25  # rows without any fault, for each agent


@dataclass(frozen=True)
class Expected:
    """How a fault must end."""

    kind: type[Failure] | type[Unresolved]
    failure_class: FailureClass
    stage: Stage
    attempt: int | None  # None: depends on how long the waits are
    retryable: bool


def model(
    failure_class: FailureClass = FailureClass.MODEL_FAILED, attempt: int | None = 2, retryable: bool = True
) -> Expected:
    return Expected(Failure, failure_class, Stage.MODEL, attempt, retryable)


def verifier(failure_class: FailureClass = FailureClass.VERIFIER_FAILED, retryable: bool = True) -> Expected:
    return Expected(Unresolved, failure_class, Stage.VERIFY, 0, retryable)


LATE = FailureClass.DEADLINE_EXCEEDED
POLICY = {fault: model() for fault in faulty_policy.FAULTS} | {
    "forbidden": model(attempt=0, retryable=False),
    "object inside": model(attempt=0, retryable=False),
    "integer too large": model(attempt=0, retryable=False),
    "nested too deeply": model(attempt=0, retryable=False),
    "hangs": model(LATE, attempt=0, retryable=False),
}
ENDPOINT = {fault: model() for fault in ANSWERS if fault != "fine"} | {
    "401": model(attempt=0, retryable=False),
    "redirect": model(attempt=0, retryable=False),
    "503": model(attempt=None),
    "hangs": model(LATE, attempt=0, retryable=False),
}
UNSENDABLE = {fault: verifier(retryable=False) for fault in ("object inside", "integer too large")}
ON_LOOP = {fault: verifier() for fault in faulty_verifier.ON_LOOP} | {
    "judge": verifier(FailureClass.JUDGE_FAILED),
    "component": verifier(FailureClass.COMPONENT_FAILED),
    **UNSENDABLE,
    "hangs": verifier(LATE, retryable=False),
}
IN_PROCESS = {fault: verifier() for fault in faulty_verifier.IN_PROCESS} | UNSENDABLE
FAULTS = {"of_policy": POLICY, "of_endpoint": ENDPOINT, "on_loop": ON_LOOP, "in_process": IN_PROCESS}


@pytest.fixture(
    scope="module", params=[FEW, pytest.param(A_THOUSAND, marks=pytest.mark.nightly)], ids=["few", "a thousand"]
)
def times(request: pytest.FixtureRequest) -> Times:
    found: Times = request.param
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ended(
    tmp_path_factory: pytest.TempPathFactory, times: Times
) -> AsyncIterator[dict[str, dict[str, list[Outcome]]]]:
    """The outcomes of all faults, by agent and fault; where there was none, by "fine"."""
    found: dict[str, dict[str, list[Outcome]]] = {}
    folder = tmp_path_factory.mktemp("edges")

    async def collect(cluster: RunningCluster, agent: str) -> None:
        edge = "model_fault" if agent in ("of_policy", "of_endpoint") else "verifier_fault"
        faults = [fault for fault in FAULTS[agent] for _ in range(times[agent])]
        given: list[dict[str, Any]] = [{edge: fault} for fault in faults]
        rows = [row(agent, **fault) for fault in given] + [row(agent)] * NOT_FAULTS
        outcomes = await cluster.collect(agent, rows, rollout_timeout_s=TIMEOUT_S[agent], max_failures=ANY_NUMBER)
        assert len(outcomes) == len(rows)
        found[agent] = {}
        for fault, outcome in zip(faults + ["fine"] * NOT_FAULTS, outcomes, strict=True):
            found[agent].setdefault(fault, []).append(outcome)

    async with endpoint() as url, running(folder, _instances(url)) as cluster:
        await asyncio.gather(*(collect(cluster, agent) for agent in FAULTS))
    yield found


def _instances(url: str) -> list[Instance]:
    def verifier_spec(name: str, implementation: str) -> Instance:
        return Instance(name, "resources", str(WORKERS / "faulty_verifier.py") + f":{implementation}")

    def agent(name: str, model: str, resources: str) -> Instance:
        return agent_spec(name, resources, model_server={"type": "responses_api_models", "name": model})

    remote = {"openai_base_url": url, "openai_api_key": "none", "openai_model": "m", "dialect": "responses"}
    return [
        Instance("faulty_policy", "models", str(WORKERS / "faulty_policy.py")),
        Instance("remote", "models", "openai_model", remote),
        verifier_spec("loop_verifier", "OnLoop"),
        verifier_spec("process_verifier", "InProcess"),
        agent("of_policy", "faulty_policy", "loop_verifier"),
        agent("of_endpoint", "remote", "loop_verifier"),
        agent("on_loop", "faulty_policy", "loop_verifier"),
        agent("in_process", "faulty_policy", "process_verifier"),
    ]


async def test_no_fault_ends_with_a_reward(ended: dict[str, dict[str, list[Outcome]]], times: Times) -> None:
    faults = [outcome for agent, by_fault in ended.items() for fault in FAULTS[agent] for outcome in by_fault[fault]]
    assert len(faults) >= (1000 if times is A_THOUSAND else 150)
    assert [outcome for outcome in faults if isinstance(outcome, VerifiedRollout)] == []


async def test_rows_beside_the_faults_get_their_reward(ended: dict[str, dict[str, list[Outcome]]]) -> None:
    for by_fault in ended.values():
        assert [getattr(outcome, "reward", None) for outcome in by_fault["fine"]] == [1.0] * NOT_FAULTS


@pytest.mark.parametrize(
    ("agent", "fault"), [(agent, fault) for agent, faults in FAULTS.items() for fault in faults], ids=lambda name: name
)
async def test_a_fault_ends_as_what_it_is(
    ended: dict[str, dict[str, list[Outcome]]], times: Times, agent: str, fault: str
) -> None:
    expected = FAULTS[agent][fault]
    outcomes = ended[agent][fault]
    assert len(outcomes) == times[agent]
    for outcome in outcomes:
        assert isinstance(outcome, Failure | Unresolved), outcome
        found = Expected(type(outcome), outcome.failure_class, outcome.stage, outcome.attempt, outcome.retryable)
        # The waits between tries at an endpoint that is full may last to the deadline.
        waited = fault == "503" and outcome.failure_class is LATE and outcome.stage is Stage.MODEL
        assert waited or found == expected or replace(found, attempt=None) == expected, outcome.message
        assert outcome.message
    if isinstance(outcome, Unresolved):
        assert outcome.response["output"][0]["content"][0]["text"] == "fine"
