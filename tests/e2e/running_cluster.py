"""A running cluster with scripted workers, and what tests do with it."""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.child import Child
from gymq.cluster.launch import Cluster
from gymq.cluster.process_spec import ProcessSpec
from gymq.defaults import Layout
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, compressed, encode
from gymq.protocol.instances import Instance
from gymq.protocol.messages import DeadLetter, Outcome, Task
from tests.support.waiting import DEADLINE_S, until, until_answer

WORKERS = Path(__file__).parent / "workers"
SECRET = "sk-never-to-be-seen-0123"

_decode_dead_letter = Decoder(DeadLetter)


def row(text: str = "say done", /, **members: Any) -> dict[str, Any]:
    """A row; the member `script` also reaches the model."""
    params: dict[str, Any] = {"input": text, "metadata": {"script": json.dumps(members.get("script", {}))}}
    if "expected" in members:
        amount = {"type": "object", "properties": {"amount": {"type": "integer"}}}
        add = {"type": "function", "parameters": amount, "strict": False}
        params["tools"] = [add | {"name": name} for name in ("add", "add_and_die")]
    return {"responses_create_params": params, **members}


def agent(name: str, resources: str, implementation: str = "simple_agent", **options: Any) -> Instance:
    references = {
        "model_server": {"type": "responses_api_models", "name": options.pop("model", "policy")},
        "resources_server": {"type": "resources_servers", "name": resources},
    }
    return Instance(name, "agents", implementation, references | options)


def instances(folder: Path) -> list[Instance]:
    """A scripted model, two environments, and agents between them; what kills its process has one of its own."""
    return [
        model("policy", folder),
        Instance("grader", "resources", str(WORKERS / "grader.py")),
        Instance("adding", "resources", str(WORKERS / "adding.py"), {"num_workers": 2}),
        agent("asker", "grader"),
        agent("adder", "adding"),
        agent("waiter", "grader", model="late_model"),
        agent("odd", "grader", str(WORKERS / "odd_agent.py")),
        agent("deadly", "grader", str(WORKERS / "odd_agent.py"), num_workers=2),
    ]


def model(name: str, folder: Path) -> Instance:
    options = {"calls": str(folder / "calls"), "api_key": SECRET}
    return Instance(name, "models", str(WORKERS / "scripted_model.py"), options)


class RunningCluster:
    """A cluster and a connection to it."""

    def __init__(self, cluster: Cluster, bus: Bus, folder: Path) -> None:
        self.processes = cluster
        self.url = cluster.url
        self.bus = bus
        self.js = bus.js
        self.outcome_store = OutcomeStore(bus)
        self.folder = folder

    def calls(self, run: str) -> Counter[str]:
        """How often the model was asked for each rollout of a run, by `task/rollout`."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(line.partition("/")[2] for line in lines if line.startswith(f"{run}/"))

    async def until_called(self, run: str, count: int = 1) -> None:
        """Wait until the model was asked so often for a run."""
        await until(lambda: self.calls(run).total() >= count)

    async def submit(
        self, run: str, agent: str, rows: Iterable[dict[str, Any]], *, timeout_s: float = 60.0, is_new: bool = False
    ) -> None:
        """Put a task for each row into the agent's queue.

        Args:
            is_new: whether the server takes it even if it has seen the same task before.
        """
        for task_index, content in enumerate(rows):
            await self.submit_task(run, agent, content, (task_index, 0), timeout_s=timeout_s, is_new=is_new)

    async def submit_task(
        self,
        run: str,
        agent: str,
        content: dict[str, Any],
        key: tuple[int, int],
        *,
        num_rollouts: int = 1,
        timeout_s: float = 60.0,
        is_new: bool = False,
    ) -> None:
        """Put one task into the agent's queue."""
        task = Task(
            run=run,
            task_index=key[0],
            rollout_index=key[1],
            num_rollouts=num_rollouts,
            agent=agent,
            row=json.dumps(content).encode(),
            timeout_s=timeout_s,
        )
        headers = {} if is_new else {"Nats-Msg-Id": f"{run}/{key[0]}/{key[1]}"}
        body = compressed(encode(task))
        await self.js.publish_with_retry(subjects.TASK.of(run, agent), body, headers, patience_s=30)

    async def until_settled(self, run: str) -> None:
        """Wait until no task of a run is in the queue."""
        await until_answer(lambda: self.waiting_tasks(run), lambda waiting: not waiting)

    async def outcomes(self, run: str, count: int) -> dict[tuple[int, int], Outcome]:
        """The outcomes of a run, once there are `count`."""
        found: dict[tuple[int, int], Outcome] = {}
        last = 0
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < count:
                async for sequence, outcome in self.outcome_store.read(run, after=last):
                    found[outcome.task_index, outcome.rollout_index] = outcome
                    last = sequence
                await asyncio.sleep(0.05)
        return found

    async def stored(self, run: str) -> list[Outcome]:
        """Every outcome that was ever stored for a run and not replaced."""
        return [outcome async for _, outcome in self.outcome_store.read(run)]

    async def dead_letters(self) -> list[DeadLetter]:
        """All dead letters."""
        return [_decode_dead_letter(stored.data) async for stored in self.js.read("DEAD_LETTERS", "gym.dead.>")]

    async def waiting_tasks(self, run: str) -> int:
        """Tasks of a run that have no outcome yet."""
        return sum((await self.js.count_by_subject("TASKS", subjects.TASK.of(run))).values())

    @property
    def children(self) -> list[Child]:
        return [child for child in self.processes.children if isinstance(child, Child)]

    def child(self, name: str) -> Child:
        return next(child for child in self.children if child.name == name)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a worker process."""
        process = self.child(name).process
        assert process is not None
        process.send_signal(number)

    async def kill_server(self) -> None:
        """Kill the NATS server, and wait until it is back."""
        server = self.processes._server
        assert server is not None
        killed, reconnects = server.pid, self.bus.reconnects
        os.kill(killed, signal.SIGKILL)
        await until(lambda: self.bus.reconnects > reconnects)
        assert server.pid != killed

    async def until_restarted(self, name: str, before: int) -> None:
        """Wait until a worker process was started again more than `before` times."""
        await until(lambda: self.child(name).restarts > before)

    async def start(self, name: str, spec: ProcessSpec) -> Child:
        """One more process; the caller stops it."""
        child = Child(name, spec, self.folder / "logs" / f"{name}.log", self.folder / "environments")
        await child.start()
        return child


@asynccontextmanager
async def small_cluster(
    folder: Path, environment: Path, layout: Layout = "kinds", ack_wait_s: float | None = None
) -> AsyncIterator[RunningCluster]:
    """A scripted model, an environment `env`, and the agent `agent` between them."""
    instances = [model("policy", folder), Instance("env", "resources", str(environment)), agent("agent", "env")]
    async with Cluster(instances, folder=folder, drain_s=2.0, layout=layout, ack_wait_s=ack_wait_s) as cluster:
        bus = await Bus.connect(cluster.url, role="test", name="test")
        yield RunningCluster(cluster, bus, folder)
        await bus.close()
