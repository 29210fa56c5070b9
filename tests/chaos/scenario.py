"""What a chaos run collects: the rows of a seed, the rewards they must get, and the workers that serve them."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymq.defaults import Layout
from gymq.protocol.instances import Instance

from .rows import row

WORKERS = Path(__file__).parent / "workers"
GRADES = (1.0, 0.75, 0.5, 0.0)
REPEATS = 4  # rollouts a row
USUAL_TURNS = 12


@dataclass(frozen=True)
class Scenario:
    """Rollouts of a seed: `single` ones of one turn, and `stateful` ones of many turns, half of them replayable."""

    seed: int
    single: int = 2000
    stateful: int = 304
    turns: int = USUAL_TURNS  # model calls of a stateful rollout
    layout: Layout = "kinds"

    @property
    def slowness(self) -> float:
        """How many times as long as usual a stateful rollout takes.

        Faults are as many times rarer and limits as many times longer. With a fault a second, rollouts of 50 turns are
        in flight when several processes die, are quarantined for that, and fail when their process is killed again.
        """
        return max(1.0, self.turns / USUAL_TURNS)

    @property
    def num_rollouts(self) -> int:
        return len(self.grades) * REPEATS

    @property
    def grades(self) -> list[float]:
        """The right reward of each task."""
        return [row["grade"] for row in self.rows()]

    def rows(self) -> list[dict[str, Any]]:
        """The rows, the kinds mixed; always the same for a seed."""
        rng = random.Random(f"rows {self.seed}")
        agents = ["single"] * (self.single // REPEATS)
        agents += ["solver_replay", "solver_restart"] * (self.stateful // REPEATS // 2)
        rng.shuffle(agents)
        return [_row(rng, number, agent, 1 if agent == "single" else self.turns) for number, agent in enumerate(agents)]

    def write(self, path: Path) -> None:
        path.write_text("".join(json.dumps(row) + "\n" for row in self.rows()))


def _row(rng: random.Random, number: int, agent: str, turns: int) -> dict[str, Any]:
    values = [rng.randrange(1000) for _ in range(turns - 1)]
    return row(
        agent,
        f"row {number}",
        values=values,
        grade=rng.choice(GRADES),
        latencies_s=[round(rng.uniform(0.02, 0.1), 3) for _ in range(turns)],
        # Some calls are long enough to be accepted first and probed then.
        tool_s=[rng.choice([0.0] * 8 + [0.02] * 3 + [0.35]) for _ in values],
        verify_s=rng.choice([0.0] * 8 + [0.3]),
        # Of the prompt between the generation before and each call, and those that the call samples.
        between=[[rng.randrange(50_000) for _ in range(4)] for _ in range(turns)],
        sampled=[[rng.randrange(50_000) for _ in range(2)] for _ in range(turns)],
    )


def instances(log: Path, layout: Layout = "kinds") -> list[Instance]:
    """The workers. One agent has two processes, so that a dead one's tasks go to a living one; a cell has them all."""
    copies: dict[str, Any] = {"num_workers": 2} if layout == "kinds" else {}

    def environment(name: str, implementation: str) -> Instance:
        return Instance(name, "resources", str(WORKERS / implementation), {**copies, "log": str(log)})

    return [
        Instance("policy", "models", str(WORKERS / "policy.py"), {**copies, "log": str(log)}),
        environment("replayable", "chain.py:Replayable"),
        environment("restarting", "chain.py:Restarting"),
        Instance("plain", "resources", str(WORKERS / "plain.py")),
        agent_spec("single", "plain"),
        agent_spec("solver_replay", "replayable", **copies),
        agent_spec("solver_restart", "restarting"),
    ]


def agent_spec(name: str, resources: str, implementation: str = "simple_agent", **options: Any) -> Instance:
    """An agent that asks the instance `policy`."""
    references = {
        "model_server": {"type": "responses_api_models", "name": "policy"},
        "resources_server": {"type": "resources_servers", "name": resources},
    }
    return Instance(name, "agents", implementation, references | options)
