"""Rows that are played turn by turn in a cluster, with workers that are killed in the middle."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.child import Child
from gymq.cluster.launch import Cluster
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.instances import Instance
from gymq.protocol.messages import Outcome, Task, VerifiedRollout
from tests.support.waiting import DEADLINE_S, until, until_answer

LATENCY_S = 0.15  # of the model; leaves time to kill something


def script(*texts: str) -> str:
    """Return what the simulated model says, turn by turn."""
    return json.dumps([[{"text": text}] for text in texts])


def row(solution: Iterable[str], mistake: Iterable[str] = (), **fields: Any) -> dict[str, Any]:
    """Return a row with what the model plays."""
    metadata = {"simulated_solution": script(*solution), "simulated_mistake": script(*mistake)}
    return {"responses_create_params": {"input": [], "metadata": metadata}, **fields}


async def played(
    folder: Path,
    environment: Instance,
    rows: list[dict[str, Any]],
    *,
    skill: float,
    kill: bool = False,
    agent: str = "gymnasium_agent",
    deadline_s: float = DEADLINE_S,
    **options: Any,
) -> list[VerifiedRollout]:
    """Return the outcomes of rows, all of which are played at once.

    Args:
        environment: served by as many processes as its option `num_workers` says.
        skill: probability that the model plays the solution.
        kill: whether all processes of the environment are killed while the rows are played, so that each session is
            lost.
        agent: that plays them.
        deadline_s: for each of the steps; an environment may import much.
        options: of the agent.
    """
    latency = {"latency_s": LATENCY_S if kill else 0.0}
    references = {
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "resources_server": {"type": "resources_servers", "name": environment.name},
    }
    instances = [
        environment,
        Instance("policy_model", "models", "simulated_model", {"skill": skill, **latency}),
        Instance("player", "agents", agent, {**references, **options}),
    ]
    async with Cluster(instances, folder=folder, ack_wait_s=5.0, drain_s=2.0) as cluster:
        bus = await Bus.connect(cluster.url, role="test", name="test")
        try:
            for number, fields in enumerate(rows):
                task = Task(
                    run="run",
                    task_index=number,
                    rollout_index=0,
                    num_rollouts=1,
                    agent="player",
                    row=json.dumps(fields).encode(),
                    timeout_s=max(120.0, deadline_s),
                )
                await bus.js.publish_with_retry(subjects.TASK.of("run", "player"), encode(task), {}, patience_s=30)
            if kill:
                await _kill(bus, _children(cluster, environment), len(rows), deadline_s)
            return await _outcomes(bus, len(rows), deadline_s)
        finally:
            await bus.close()


def _children(cluster: Cluster, environment: Instance) -> list[Child]:
    children = [child for child in cluster.children if isinstance(child, Child)]
    return [child for child in children if environment.name in {served.name for served in child.spec.instances}]


async def _kill(bus: Bus, children: list[Child], num_rollouts: int, deadline_s: float) -> None:
    """Kill processes when their sessions are seeded and most have taken a step."""
    seed_observation_message_and_step = 4
    least = (seed_observation_message_and_step - 1) * num_rollouts + 1
    await until_answer(lambda: _num_effects(bus), lambda effects: effects >= least, deadline_s=deadline_s)
    restarts = [child.restarts for child in children]
    for child in children:
        assert child.process is not None
        child.process.kill()
    await until(
        lambda: all(child.restarts > before for child, before in zip(children, restarts, strict=True)),
        deadline_s=deadline_s,
    )


async def _num_effects(bus: Bus) -> int:
    return sum((await bus.js.count_by_subject("JOURNAL", "gym.journal.>")).values())


async def _outcomes(bus: Bus, count: int, deadline_s: float) -> list[VerifiedRollout]:
    async def stored() -> list[Outcome]:
        return [outcome async for _, outcome in OutcomeStore(bus).read("run")]

    found = await until_answer(stored, lambda outcomes: len(outcomes) >= count, deadline_s=deadline_s)
    verified = [outcome for outcome in found if isinstance(outcome, VerifiedRollout)]
    assert len(verified) == count, [outcome for outcome in found if outcome not in verified]
    return sorted(verified, key=lambda outcome: outcome.task_index)
