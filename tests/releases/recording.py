"""Record what the present release sends and stores."""

import asyncio
import json
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from gymq.bus import Bus, streams
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.dead_letters import DeadLetterEntry, DeadLetters
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.queue.steering import steer
from gymq.cluster.launch import Cluster
from gymq.execution.services.profiler import last_profile
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.instances import Instance
from gymq.protocol.messages import Task
from tests.protocol.builders import EXAMPLES
from tests.support.waiting import until, until_answer

HERE = Path(__file__).parent
RUN, NUM_TASKS = "recorded", 4


def instances(folder: Path, *, hangs: bool = False) -> list[Instance]:
    """The workers of the recorded run."""
    worker = str(HERE / "workers.py")
    references = {
        "model_server": {"type": "responses_api_models", "name": "policy"},
        "resources_server": {"type": "resources_servers", "name": "adding"},
    }
    return [
        Instance("policy", "models", f"{worker}:Policy", {"calls": str(folder / "calls"), "hangs": hangs}),
        Instance("adding", "resources", f"{worker}:Adding"),
        Instance("agent", "agents", "simple_agent", references),
    ]


def task(number: int) -> Task:
    """A task of the recorded run; those with odd numbers are not finished in the recording."""
    add = {"type": "function", "name": "add", "strict": False}
    add["parameters"] = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    params = {"input": [{"role": "user", "content": str(number)}], "tools": [add]}
    row = json.dumps({"responses_create_params": params, "expected": 3}).encode()
    place: dict[str, Any] = {"run": RUN, "task_index": number, "rollout_index": 0}
    # Resumed: an agent that takes it from copied streams looks for its journal.
    return Task(**place, agent="agent", row=row, timeout_s=3600.0, num_rollouts=1, resumed=True)


async def outcomes(bus: Bus) -> dict[int, Any]:
    """The outcomes of the recorded run with their sequences, by task."""
    return {outcome.task_index: (number, outcome) async for number, outcome in OutcomeStore(bus).read(RUN)}


async def dead_letters(bus: Bus) -> list[DeadLetterEntry]:
    """All dead letters."""
    return [entry async for entry in DeadLetters(bus).read()]


async def record_streams(folder: Path) -> dict[str, list[tuple[str, bytes]]]:
    """Return what is stored while the run is in progress: the subjects and bodies of each stream."""
    async with Cluster(instances(folder, hangs=True), folder=folder, drain_s=0.1) as cluster:
        bus = await Bus.connect(cluster.url, role="test", name="recording")
        queue = QueueClient(bus)
        await queue.open_run(RUN)
        for number in range(NUM_TASKS):
            await queue.submit(task(number), patience_s=10.0)
        await steer(bus, RUN, share=2.0)
        await bus.js.store(subjects.TASK.of(RUN, "agent"), b"not a task")
        await until_answer(lambda: outcomes(bus), lambda found: len(found) == NUM_TASKS // 2)
        await until(lambda: len((folder / "calls").read_text().splitlines()) == 2 * NUM_TASKS)
        await until_answer(lambda: last_profile(bus.js, RUN), lambda found: found[1] == NUM_TASKS // 2)
        await until_answer(lambda: dead_letters(bus))
        kept = [name for name in streams.stream_configs() if name != streams.ADVISORIES]
        stored = {name: [(found.subject, found.data) async for found in bus.js.read(name, ">")] for name in kept}
        await bus.close()
    return stored


def main() -> None:
    """Write the folder of the present release.

    Raises:
        FileExistsError: it is there.
    """
    release = HERE / version("gymq")
    messages = {type(example).__struct_config__.tag: encode(example) for example in EXAMPLES}
    with tempfile.TemporaryDirectory() as folder:
        stored = asyncio.run(record_streams(Path(folder)))
    release.mkdir()
    for name, content in (("messages", messages), ("streams", stored)):
        (release / f"{name}.msgpack").write_bytes(msgspec.msgpack.encode(content))


if __name__ == "__main__":
    main()
