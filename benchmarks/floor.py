"""The floor: the messages of a rollout sent with bare nats-py and msgspec, and handlers that do nothing.

The same processes (client, agent, model, resources, profiler), the same server, streams, bodies and acknowledgements as
gymq's, in the order gymq sends them, without anything gymq does beside: no validation, no sessions, no deadlines, no
death detection, no files.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import nats
import uvloop
from nats.js import api

from benchmarks import endpoint
from benchmarks.measure import Measured, cpu_s, resident_bytes
from benchmarks.workloads import Workload, model_reply
from gymq.bus import Bus, streams
from gymq.cluster.server import EmbeddedServer
from gymq.protocol.codec import compressed
from gymq.protocol.tokens import decode_ext, encode_ext

ROLES = ("model", "resources", "agent", "profiler")
SLOTS = 4096  # of the agent, or as many as are in flight

_encode = msgspec.msgpack.Encoder(enc_hook=encode_ext).encode
_decode = msgspec.msgpack.Decoder(ext_hook=decode_ext).decode


class _Rate(msgspec.Struct):
    turns: int
    tokens: int
    latency_s: float
    endpoint: str = ""  # that the model asks
    slots: int = SLOTS


class _LogProb(msgspec.Struct, gc=False):
    token: str
    logprob: float


class _LogProbs(msgspec.Struct):
    content: list[_LogProb]


class _Choice(msgspec.Struct):
    message: dict[str, Any]
    logprobs: _LogProbs | None = None
    token_ids: list[int] | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    prompt_token_ids: list[int] | None = None


_decode_completion = msgspec.json.Decoder(_Completion).decode


async def _model(nc: Any, load: _Rate) -> None:
    http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) if load.endpoint else None

    async def ask_endpoint(message: Any) -> None:
        assert http is not None
        params = _decode(message.data)["params"]
        messages = [{"role": "tool" if "output" in item else "user", **item} for item in params.pop("input")]
        body = msgspec.json.encode({**params, "model": "bench", "messages": messages})
        async with http.post(f"{load.endpoint}/chat/completions", data=body) as answer:
            completion = _decode_completion(await answer.read())
        choice = completion.choices[0]
        reply = model_reply(load.turns, 0, len(messages) - 1)
        if choice.logprobs is not None and choice.token_ids is not None:
            item = reply["output"][0]
            item["prompt_token_ids"] = array("i", completion.prompt_token_ids or ())
            item["generation_token_ids"] = array("i", choice.token_ids)
            item["generation_log_probs"] = array("f", [entry.logprob for entry in choice.logprobs.content])
        await nc.publish(message.reply, _encode({"type": "generated.v1", "response": reply}))

    async def answer(message: Any) -> None:
        request = _decode(message.data)
        if load.latency_s:
            await asyncio.sleep(float(request["params"]["metadata"]["latency_s"]))
        reply = model_reply(load.turns, load.tokens, len(request["params"]["input"]) - 1)
        await nc.publish(message.reply, _encode({"type": "generated.v1", "response": reply}))

    async def on_message(message: Any) -> None:
        if load.endpoint:
            asyncio.get_running_loop().create_task(ask_endpoint(message))
        elif load.latency_s:
            asyncio.get_running_loop().create_task(answer(message))
        else:
            await answer(message)

    await nc.subscribe("gym.model.bench_model", queue="model", cb=on_message)


async def _resources(nc: Any, _load: _Rate) -> None:
    seeded = _encode({"type": "seeded.v1", "session": "gym.session.w.s"})
    result = _encode({"type": "tool_result.v1", "output": '{"value": 1}'})
    verified = _encode({"type": "verified.v1", "reward": 1.0})

    async def on_message(message: Any) -> None:
        kind = _decode(message.data)["type"]
        reply = {"seed.v1": seeded, "tool_call.v1": result, "verify.v1": verified}.get(kind)
        if reply is not None:
            await nc.publish(message.reply, reply)

    await nc.subscribe("gym.resources.bench_env", queue="resources", cb=on_message)
    await nc.subscribe("gym.seed.bench_env", queue="resources", cb=on_message)
    await nc.subscribe("gym.session.w.*", cb=on_message)


async def _agent(nc: Any, load: _Rate) -> None:
    js = nc.jetstream()
    pull = await js.pull_subscribe_bind("agents_bench_agent", stream="TASKS")
    slots = asyncio.Semaphore(load.slots)

    async def ask(subject: str, body: dict[str, Any]) -> Any:
        return _decode((await nc.request(subject, _encode(body), timeout=60)).data)

    async def rollout(message: Any) -> None:
        task = _decode(message.data)
        name = f"{task['run']}/{task['task_index']}/{task['rollout_index']}"
        subject = f"gym.rollouts.{task['run']}.{task['task_index']}.{task['rollout_index']}"
        with contextlib.suppress(nats.js.errors.NotFoundError):
            await js.get_msg("ROLLOUTS", subject=subject, direct=True)
        common = {"rollout": name, "timeout_s": 60.0}
        row = json.loads(task["row"])
        params = row["responses_create_params"]
        history, outputs = params["input"], []
        where = "gym.resources.bench_env"
        if load.turns > 1:
            where = (await ask("gym.seed.bench_env", {"type": "seed.v1", **common, "row": task["row"]}))["session"]
        for turn in range(load.turns):
            asked = {"type": "generate.v1", **common, "params": {**params, "input": history + outputs}, "session": name}
            response = (await ask("gym.model.bench_model", asked))["response"]
            outputs += response["output"]
            if turn < load.turns - 1:
                call = outputs[-1]
                called = {"number": turn, "name": call["name"], "arguments": call["arguments"]}
                done = await ask(where, {"type": "tool_call.v1", **common, **called})
                item = {"type": "function_call_output", "call_id": call["call_id"], "output": done["output"]}
                outputs.append(item)
        response = {**response, "output": outputs}
        verify = {"type": "verify.v1", **common, "number": load.turns, "row": task["row"], "response": response}
        verdict = await ask(where, verify)
        if load.turns > 1:
            await nc.publish(where, _encode({"type": "close.v1", **common}))
        outcome = {**task, "type": "rollout.v1", "response": response, "reward": verdict["reward"]}
        body = streams_body(outcome)
        await js.publish(subject, body, headers={"Nats-Expected-Last-Subject-Sequence": "0"})
        await message.ack()

    async def one(message: Any) -> None:
        try:
            await rollout(message)
        finally:
            slots.release()

    while True:
        await slots.acquire()
        slots.release()
        try:
            messages = await pull.fetch(min(256, max(1, slots._value)), timeout=2)
        except (nats.errors.TimeoutError, TimeoutError):
            continue
        for message in messages:
            await slots.acquire()
            asyncio.get_running_loop().create_task(one(message))


def streams_body(outcome: dict[str, Any]) -> bytes:
    """The body as it is stored: compressed where gymq compresses."""
    return compressed(_encode(outcome))


async def _profiler(nc: Any, _load: _Rate) -> None:
    pull = await nc.jetstream().pull_subscribe_bind("profiler", stream="ROLLOUTS")
    while True:
        try:
            messages = await pull.fetch(1024, timeout=1)
        except (nats.errors.TimeoutError, TimeoutError):
            continue
        if messages:
            await messages[-1].ack()


async def _worker(role: str, url: str, load: _Rate) -> None:
    nc = await nats.connect(url, inbox_prefix=f"_INBOX_{role}".encode())
    start = {"model": _model, "resources": _resources, "agent": _agent, "profiler": _profiler}[role]
    print("ready", flush=True)
    await start(nc, load)
    await asyncio.Event().wait()


async def run(workload: Workload, folder: Path, latencies_s: Sequence[float] = ()) -> Measured:
    """Send the workload's messages once, warm.

    Args:
        latencies_s: of the rollouts' model calls, where they differ.
    """
    if not workload.over_http:
        return await _run(workload, folder, "", 0, latencies_s)
    async with endpoint.engine() as (url, pid):
        return await _run(workload, folder, url, pid, latencies_s)


async def _run(workload: Workload, folder: Path, url: str, engine_pid: int, latencies_s: Sequence[float]) -> Measured:
    server = EmbeddedServer(folder / "jetstream")
    await server.start()
    bus = await Bus.connect(server.url, role="operator", name="floor")
    await streams.ensure(bus.js, [])
    tasks = {"filter_subject": "gym.tasks.*.bench_agent", "max_ack_pending": 1_000_000}
    await streams.ensure_consumer(bus.js, streams.TASKS, "agents_bench_agent", tasks)
    window = {"ack_policy": "all", "max_ack_pending": 100_000}
    await streams.ensure_consumer(bus.js, streams.ROLLOUTS, "profiler", window)
    slots = max(SLOTS, workload.window)
    load = msgspec.json.encode(_Rate(workload.turns, workload.tokens, workload.latency_s, url, slots)).decode()
    workers = []
    for role in ROLES:
        command = (sys.executable, "-m", "benchmarks.floor", role, server.url, load)
        worker = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert worker.stdout is not None
        await worker.stdout.readline()
        workers.append(worker)
    try:
        nc = await nats.connect(server.url, inbox_prefix=b"_INBOX_client", pending_size=64 << 20)
        await _client(nc, workload, "warm", max(64, workload.window // 8))
        processes = endpoint.counted(engine_pid)
        before = cpu_s(processes)
        started = time.perf_counter()
        peak = resident_bytes(processes)
        await _client(nc, workload, "floor", workload.rollouts, latencies_s)
        wall = time.perf_counter() - started
        cpu = cpu_s(processes) - before
        peak = max(peak, resident_bytes(processes))
        await nc.close()
    finally:
        for worker in workers:
            worker.kill()
            await worker.wait()
        await bus.close()
        await server.stop()
    return Measured(workload.rollouts, wall, cpu, peak, [])


async def _client(nc: Any, workload: Workload, run_name: str, rollouts: int, latencies_s: Sequence[float] = ()) -> None:
    js = nc.jetstream()
    rows = [replace(workload, latency_s=latency_s).row(0) for latency_s in latencies_s]
    rows = rows or [workload.row(0)] * rollouts
    window = asyncio.Semaphore(workload.window)
    done = asyncio.Event()
    rung = asyncio.Event()
    seen = 0

    async def ring(_message: Any) -> None:
        rung.set()

    bell = await nc.subscribe(f"gym.done.{run_name}.>", cb=ring)
    inbox = nc.new_inbox()
    arrived: asyncio.Queue[Any] = asyncio.Queue()
    batches = await nc.subscribe(inbox, cb=arrived.put, pending_bytes_limit=512 << 20)

    async def follow() -> None:
        nonlocal seen
        after = 0
        while seen < rollouts:
            await rung.wait()
            rung.clear()
            while True:
                query = {"seq": after + 1, "next_by_subj": f"gym.rollouts.{run_name}.>", "batch": 256}
                await nc.publish("$JS.API.DIRECT.GET.ROLLOUTS", json.dumps(query).encode(), reply=inbox)
                found = 0
                while True:
                    message = await arrived.get()
                    if "Status" in message.headers:
                        break
                    found += 1
                    after = int(message.headers["Nats-Sequence"])
                    window.release()
                seen += found
                if found < 256:
                    break
        done.set()

    following = asyncio.create_task(follow())
    numbers = iter(range(rollouts))

    async def submit() -> None:
        for number in numbers:
            await window.acquire()
            task = {
                "type": "task.v1",
                "run": run_name,
                "task_index": 0,
                "rollout_index": number,
                "agent": "bench_agent",
                "row": rows[number],
                "timeout_s": 3600.0,
            }
            headers = {api.Header.MSG_ID.value: f"{run_name}/0/{number}"}
            await js.publish(f"gym.tasks.{run_name}.bench_agent", _encode(task), headers=headers)

    await asyncio.gather(*(submit() for _ in range(64)))
    await done.wait()
    await following
    await bell.unsubscribe()
    await batches.unsubscribe()


if __name__ == "__main__":
    uvloop.run(_worker(sys.argv[1], sys.argv[2], msgspec.json.decode(sys.argv[3], type=_Rate)))
