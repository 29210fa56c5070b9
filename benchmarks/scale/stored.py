"""python -m benchmarks.scale.stored: what is asked of a cluster that has stored a million rollouts of one run.

The rollouts are written as agents write them, but without making them. Says what server and profiler need, how long the
profiler takes to count them, how long the server takes to start again, and how long the commands take, their own start
included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.scale.queued import SUBMITTERS, say_command, tell
from benchmarks.scale.watched import MIB, Watched, watched
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.data.jsonl import JsonlFile
from gymq.data.resume import Resume
from gymq.execution.services.profiler import read_profile
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Failure, FailureClass, Run, Stage, VerifiedRollout

RUN = "million"
REPEATS = 16
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Bern", "annotations": []}],
        }
    ],
    "usage": {"input_tokens": 20, "output_tokens": 2, "total_tokens": 22},
}


def row(task: int, rollout: int) -> bytes:
    params = {"input": [{"role": "user", "content": f"Question {task}: what is the capital of Switzerland?"}]}
    members = {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "agent"}}
    return json.dumps(members | {"responses_create_params": params}).encode()


async def store(cluster: Watched, rollouts: int) -> None:
    js, outcomes = cluster.bus.js, OutcomeStore(cluster.bus)
    record = Run(run=RUN, created_at=time.time(), num_rollouts=rollouts)
    await js.publish_with_retry(subjects.RUN.of(RUN), encode(record), {}, patience_s=60.0)
    numbers = iter(range(rollouts))

    async def some() -> None:
        for number in numbers:
            task, rollout = divmod(number, REPEATS)
            outcome = VerifiedRollout(
                run=RUN,
                task_index=task,
                rollout_index=rollout,
                num_rollouts=REPEATS,
                agent="agent",
                row=row(task, rollout),
                response=RESPONSE,
                reward=float(number % 3 == 0),
                duration_s=1.0,
            )
            await outcomes.put(outcome, replaces=None, patience_s=600.0)

    await asyncio.gather(*(some() for _ in range(SUBMITTERS)))


async def store_failure(cluster: Watched, task: int) -> None:
    """One rollout more, and it failed."""
    outcome = Failure(
        run=RUN,
        task_index=task,
        rollout_index=0,
        agent="agent",
        row=row(task, 0),
        failure_class=FailureClass.MODEL_FAILED,
        stage=Stage.MODEL,
        message="no GPU",
    )
    await OutcomeStore(cluster.bus).put(outcome, replaces=None, patience_s=60.0)


async def until_profiled(cluster: Watched, rollouts: int) -> None:
    js = cluster.bus.js
    while True:
        profile = await read_profile(js, RUN)
        counted = 0
        if profile is not None:
            counted = sum(agent["rollouts"] for agent in profile.snapshot["agents"].values())
        if counted >= rollouts:
            return
        await asyncio.sleep(1.0)


def say_resume(folder: Path, rollouts: int) -> None:
    """Read the files of a collection that has all but one of its rollouts."""
    rows, output = folder / "rows.jsonl", folder / "rollouts.jsonl"
    with rows.open("wb") as to_run, output.open("wb") as done:
        for number in range(rollouts):
            line = row(*divmod(number, REPEATS)) + b"\n"
            to_run.write(line)
            if number != rollouts - 1:
                done.write(line)
    begun = time.perf_counter()
    with Resume(JsonlFile(rows), JsonlFile(output)) as resume:
        left = sum(1 for _ in resume.to_run())
    print(f"what is left of the run ({left}) is found in its files in {time.perf_counter() - begun:.1f} s", flush=True)


async def run(rollouts: int) -> None:
    with tempfile.TemporaryDirectory(prefix="gymq-bench-") as temporary:
        folder = Path(temporary)
        async with watched([], folder) as cluster:
            begun = time.perf_counter()
            await store(cluster, rollouts)
            tell(cluster, f"{rollouts:,} rollouts are stored", begun)
            await until_profiled(cluster, rollouts)
            tell(cluster, "and profiled", begun)
            cluster.print_peaks()
        begun = time.perf_counter()
        async with watched([], folder) as cluster:
            tell(cluster, "everything has started again", begun)
            await asyncio.to_thread(_commands, cluster.cluster.url)
            await store_failure(cluster, rollouts)
            print("the last one failed:", flush=True)
            await asyncio.to_thread(say_command, cluster.cluster.url, "rollouts", "--run", RUN, "--failed")
            print(f"{await asyncio.to_thread(_size, folder) / MIB:,.0f} MiB on disk")
            cluster.print_peaks()
        say_resume(folder, rollouts)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _commands(url: str) -> None:
    say_command(url, "rollouts")
    say_command(url, "status")
    say_command(url, "rollouts", "--run", RUN)
    say_command(url, "rollouts", "--run", RUN, "--failed")
    say_command(url, "rollouts", "--run", RUN, "--task", "5")
    say_command(url, "rollouts", "--run", RUN, "--task", "5", "--rollout", "3")
    say_command(url, "profile", "--run", RUN, "--live")
    say_command(url, "profile", "--run", RUN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    uvloop.run(run(parser.parse_args().rollouts))


if __name__ == "__main__":
    main()
