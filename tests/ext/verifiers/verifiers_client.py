"""Roll out rows by an environment server with the client of verifiers, as prime-rl does; needs verifiers alone.

A line on the standard input is a job, or "cancel", which cancels what is in flight.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.serve import EnvClient
from verifiers.v1.utils.loaders import resolve_env_config

STARTUP_S = 600.0


def found(task: vf.Task, episode: Any) -> dict[str, Any]:
    """What prime-rl reads of an episode."""
    assert (episode.task.key, episode.task.hash) == (task.key, task.hash)  # prime-rl refuses other episodes
    return {
        "ok": episode.ok,
        "is_timeout": episode.is_timeout,
        "errors": [error.model_dump() for error in episode.errors],
        "traces": [
            {
                "ok": trace.ok,
                "has_error": trace.has_error,
                "trainable": trace.agent.trainable,
                "reward": trace.reward,
                "metrics": trace.metrics,
                "info": trace.info,
                "num_turns": trace.num_turns,
                "num_tokens": [trace.num_input_tokens, trace.num_output_tokens],
                "is_truncated": trace.is_truncated,
                "seconds": trace.timing.agent.duration,
                "transcript": trace.transcript,
                "messages": [message.model_dump(exclude_none=True) for message in trace.branches[0].messages],
                "branches": [
                    {
                        "token_ids": branch.token_ids,
                        "mask": branch.sampled_mask,
                        "log_probs": branch.logprobs,
                        "experts": None if branch.routed_experts is None else branch.routed_experts.tolist(),
                    }
                    for branch in trace.branches
                ],
            }
            for trace in episode.traces
        ],
    }


async def work_on(job: dict[str, Any]) -> None:
    """Roll out the rows of a job, all at once, and write what came back."""
    server = EnvClient(job["address"])
    await server.wait_for_server_startup(STARTUP_S)
    taskset = {"id": "gymq_rows", "rows": job["rows"], "agent": job["agent"]}
    tasks = list(vf.load_taskset(resolve_env_config({"taskset": taskset}).taskset))
    model = vf.TrainClientConfig() if job["client"] == "train" else vf.EvalClientConfig()

    async def roll_out(task: vf.Task) -> dict[str, Any]:
        data = task.data.model_dump(mode="json")
        try:
            return found(task, await server.run(model, "policy", vf.SamplingConfig(**job["sampling"]), data))
        except RuntimeError as error:
            return {"raised": str(error)}
        except asyncio.CancelledError:
            return {"cancelled": True}

    rollouts = [asyncio.create_task(roll_out(task)) for task in tasks for _ in range(job["repeats"])]
    in_flight.extend(rollouts)
    answers = await asyncio.gather(*rollouts)
    await server.close()
    output = Path(job["output"])
    output.with_suffix(".tmp").write_text(json.dumps(answers))
    output.with_suffix(".tmp").rename(output)


async def main() -> None:
    jobs = set()
    while line := await asyncio.to_thread(sys.stdin.readline):
        job = json.loads(line)
        if job == "cancel":
            for rollout in in_flight:
                rollout.cancel()
        else:
            jobs.add(asyncio.create_task(work_on(job)))


in_flight: list[asyncio.Task[Any]] = []
asyncio.run(main())
