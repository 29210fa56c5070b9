"""A trainer trains, and whatever there is, itself too, is killed or frozen.

It runs the loop of an adapter, as `counting_trainer` has it, and is started again when it dies. The figures of
`python -m tests.ext.trainers.chaos.trainings`: rollouts that are stored, how many there have to be, and waste: those
that no update was made with.

verl's adapter needs verl: GYMQ_GENERATORS_PYTHON names a Python that has it (`make .venv-generators/installed`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.child import Child
from gymq.cluster.launch import Cluster
from gymq.cluster.server.store import Store
from gymq.protocol.instances import Instance
from gymq.protocol.messages import VerifiedRollout
from tests.chaos.experiment import ACK_WAIT_S, done
from tests.chaos.fault_injector import FaultInjector
from tests.chaos.scenario import REPEATS, WORKERS, Scenario

from .counting_trainer import GROUPS, LOOPS, SAMPLES, expected

ROOT = Path(__file__).parents[4]
STEPS = 10
TURNS = 6
FAULT_EVERY_S = 1.0  # at most, and after so many model calls: a slow machine meets no more of them than a fast one
CALLS_BETWEEN_FAULTS = 60
DEADLINE_S = 900.0  # of a seed; beyond it something is wedged
MOST_WASTE = 0.01


@dataclass(frozen=True)
class Trained:
    """What one training left.

    Attributes:
        needed: rollouts of all updates.
        stored: verified rollouts of its run.
        failed: stored failures.
        wrong: updates whose rewards are not those of their rows, or that are missing.
        starts: of the trainer's process.
        calls: of the model, by the run's rollouts.
        needed_calls: if nothing had died.
    """

    loop: str
    needed: int
    stored: int
    failed: int
    wrong: int
    starts: int
    calls: int
    needed_calls: int

    @property
    def waste(self) -> float:
        return (self.stored + self.failed - self.needed) / self.needed

    @property
    def is_kept(self) -> bool:
        return self.stored == self.needed and not self.wrong and self.waste < MOST_WASTE

    def __str__(self) -> str:
        calls = f"{self.calls} of {self.needed_calls} model calls"
        return (
            f"{self.loop}: {self.stored} of {self.needed} stored, {self.failed} failed, waste {self.waste:.2%}, "
            f"{self.wrong} wrong updates, {calls}, {self.starts} starts"
        )


class _Trainer:
    """A process that trains, and what starts it again when it dies."""

    def __init__(self, loop: str, url: str, folder: Path) -> None:
        self._loop = loop
        self._folder = folder / "trainer"
        python = os.environ["GYMQ_GENERATORS_PYTHON"] if loop == "verl" else sys.executable
        script = Path(__file__).with_name("counting_trainer.py")
        self._command = [python, str(script), loop, "--nats", url, "--run", loop]
        self._command += ["--rows", str(folder / "rows.jsonl"), "--folder", str(self._folder)]

    @property
    def pids(self) -> list[int]:
        note = self._folder / "training"
        return [int(note.read_text())] if note.exists() and note.stat().st_size else []

    @property
    def starts(self) -> int:
        return 1 + (self._folder / "starts").stat().st_size

    async def run(self) -> None:
        """Train to the end."""
        self._folder.mkdir()
        log = self._folder / "log"
        variables = os.environ | {"PYTHONPATH": str(ROOT)}
        with log.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                *self._command, env=variables, stdout=file, stderr=file, start_new_session=True
            )
            try:
                assert await process.wait() == 0, log.read_text(errors="replace")[-3000:]
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def num_wrong(self, scenario: Scenario) -> int:
        """Updates that did not get the rewards of their rows."""
        lines = map(json.loads, (self._folder / "rewards.jsonl").read_text().splitlines())
        rows = scenario.rows()
        of_steps: dict[int, list[list[float]]] = {}
        for step, rewards in lines:
            of_steps.setdefault(step, []).append(rewards)
        if self._loop == "own":  # which takes groups in the order of their completion, and compares them itself
            return STEPS - len(of_steps)
        right = [expected(rows[step * GROUPS : (step + 1) * GROUPS]) for step in range(STEPS)]
        return sum(not of_steps.get(step) or any(got != right[step] for got in of_steps[step]) for step in range(STEPS))


async def train(seed: int, loop: str, folder: Path) -> tuple[Trained, Counter[str]]:
    """Train while processes die; return what the training left, and what was killed and frozen.

    Raises:
        TimeoutError: it did not end within `DEADLINE_S`.
    """
    scenario = _scenario(seed)
    log = folder / "effects"
    log.mkdir(parents=True)
    scenario.write(folder / "rows.jsonl")
    async with Cluster(_instances(log), folder=folder, ack_wait_s=ACK_WAIT_S, drain_s=5.0) as cluster:
        trainer = _Trainer(loop, cluster.url, folder)
        injector = FaultInjector(seed, _Victims(cluster, trainer, folder), FAULT_EVERY_S)
        async with asyncio.timeout(DEADLINE_S), done(injector):
            await trainer.run()
        bus = await Bus.connect(cluster.url, role="test", name="chaos")
        try:
            outcomes = [outcome async for _, outcome in OutcomeStore(bus).read(loop)]
        finally:
            await bus.close()
    num_verified = sum(isinstance(outcome, VerifiedRollout) for outcome in outcomes)
    left = Trained(
        loop,
        needed=STEPS * GROUPS * SAMPLES,
        stored=num_verified,
        failed=len(outcomes) - num_verified,
        wrong=trainer.num_wrong(scenario),
        starts=trainer.starts,
        calls=_num_calls(folder),
        needed_calls=sum(len(row["values"]) + 1 for row in scenario.rows()) * SAMPLES,
    )
    return left, injector.counts()


def _scenario(seed: int) -> Scenario:
    """A third of the rows has one turn; half of the others cannot replay their session."""
    num_rows = STEPS * GROUPS
    single = num_rows // 3
    return Scenario(seed, single=single * REPEATS, stateful=(num_rows - single) * REPEATS, turns=TURNS)


def _instances(log: Path) -> list[Instance]:
    options = {"num_workers": 2, "log": str(log)}
    return [
        Instance("policy_model", "models", str(WORKERS / "policy.py"), options),
        Instance("replayable", "resources", str(WORKERS / "chain.py:Replayable"), options),
        Instance("restarting", "resources", str(WORKERS / "chain.py:Restarting"), options),
        Instance("plain", "resources", str(WORKERS / "plain.py")),
        _agent("single", "plain"),
        _agent("solver_replay", "replayable", num_workers=2),
        _agent("solver_restart", "restarting"),
    ]


def _agent(name: str, resources: str, **options: int) -> Instance:
    references = {
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "resources_server": {"type": "resources_servers", "name": resources},
    }
    return Instance(name, "agents", "simple_agent", references | options)


class _Victims:
    """The processes of a role, if there was progress since the last fault. The trainer is what collects here."""

    def __init__(self, cluster: Cluster, trainer: _Trainer, folder: Path) -> None:
        self._cluster = cluster
        self._trainer = trainer
        self._folder = folder
        self._num_calls = 0  # when a process was hit last

    def __call__(self, role: str) -> list[int]:
        num_calls = _num_calls(self._folder)
        if num_calls < self._num_calls + CALLS_BETWEEN_FAULTS:
            return []
        pids = self._pids(role)
        self._num_calls = num_calls if pids else self._num_calls
        return pids

    def _pids(self, role: str) -> list[int]:
        if role == "collector":
            return self._trainer.pids
        if role == "nats":
            record = Store(self._folder / "jetstream").read_record()
            return [record.pid] if record is not None else []
        children = [child for child in self._cluster.children if isinstance(child, Child) and child.spec.role == role]
        processes = [child.process for child in children if child.process is not None]
        return [process.pid for process in processes if process.returncode is None]


def _num_calls(folder: Path) -> int:
    """Calls of the model so far."""
    return sum(path.read_text().count(" begin ") for path in (folder / "effects").glob("model-*"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--loops", nargs="+", default=list(LOOPS), choices=LOOPS)
    given = parser.parse_args()
    of_loop: defaultdict[str, list[Trained]] = defaultdict(list)
    faults: Counter[str] = Counter()
    for seed, loop in product(range(given.first_seed, given.first_seed + given.seeds), given.loops):
        folder = Path(tempfile.mkdtemp(prefix=f"trainings-{seed}-"))
        trained, injected = asyncio.run(train(seed, loop, folder))
        faults += injected
        of_loop[loop].append(trained)
        print(f"seed {seed}: {trained}" + ("" if trained.is_kept else f"; see {folder}"), flush=True)
        if trained.is_kept:
            shutil.rmtree(folder)
    for loop, seeds in of_loop.items():
        print(f"{loop}: {sum(one.is_kept for one in seeds)} of {len(seeds)} seeds kept; {_total(seeds)}")
    print("faults:", dict(faults))
    return 0 if all(one.is_kept for seeds in of_loop.values() for one in seeds) else 1


def _total(seeds: Sequence[Trained]) -> Trained:
    sums = {one.name: sum(getattr(seed, one.name) for seed in seeds) for one in fields(Trained) if one.type == "int"}
    return replace(seeds[0], **sums)


if __name__ == "__main__":
    sys.exit(main())
