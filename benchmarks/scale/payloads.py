"""python -m benchmarks.scale.payloads: replies from 5 KB to 1.4 MB, 64 and 1,024 at a time, of one model process.

The sizes are those of the reply as JSON, with token ids and log probs. One call for each in flight; all start at once,
and the model answers at once. This process only calls: it decodes each reply, and checks how many tokens it has.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import msgspec
import uvloop

from benchmarks.scale.watched import Watched, watched
from benchmarks.workloads import model_reply
from gymq.bus.rpc.calls import Calls
from gymq.failures import RolloutError
from gymq.protocol import subjects
from gymq.protocol.instances import Instance
from gymq.protocol.messages import Generate, Generated
from gymq.protocol.tokens import encode_json

TOKENS = (160, 890, 55_500)  # about 5 KB, 23 KB and 1.4 MB
IN_FLIGHT = (64, 1024)
TIMEOUT_S = 600.0


async def burst(cluster: Watched, calls: Calls, tokens: int, in_flight: int) -> None:
    latencies: list[float] = []
    failures: dict[str, int] = {}

    async def one(number: int) -> None:
        params = {"input": [], "metadata": {"tokens": str(tokens)}}
        request = Generate(rollout=f"scale/{number}/0", timeout_s=TIMEOUT_S, params=params, session=str(number))
        begun = time.perf_counter()
        try:
            generated = await calls.call(subjects.MODEL.of("long"), request)
        except RolloutError as error:
            failures[error.failure_class] = failures.get(error.failure_class, 0) + 1
            return
        assert isinstance(generated, Generated)
        assert len(generated.response["output"][0]["generation_token_ids"]) == tokens
        latencies.append(time.perf_counter() - begun)

    before, begun = cluster.cpu_s(), time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(in_flight)))
    wall = time.perf_counter() - begun
    spent = {name: seconds - before[name] for name, seconds in cluster.cpu_s().items()}
    size = len(msgspec.json.encode(model_reply(1, tokens, 0), enc_hook=encode_json))
    latencies.sort()
    p50, p99 = (latencies[int(share * (len(latencies) - 1))] if latencies else 0.0 for share in (0.5, 0.99))
    memory = cluster.look()
    print(
        f"{size / 1000:8,.0f} KB {in_flight:6,} at once: {len(latencies):5,} arrived, {failures or 'no failures'}, "
        f"{wall:6.2f} s, p50 {p50:5.2f} s, p99 {p99:5.2f} s, CPU ms a reply: model {_ms(spent, 'models', in_flight)}, "
        f"server {_ms(spent, 'nats-server', in_flight)}, caller {_ms(spent, 'client', in_flight)}; "
        f"MiB then: model {memory['models'] / 2**20:.0f}, caller {memory['client'] / 2**20:.0f}",
        flush=True,
    )


def _ms(spent: dict[str, float], name: str, count: int) -> str:
    return f"{1000 * spent[name] / count:.2f}"


async def run() -> None:
    async with watched([Instance("long", "models", "benchmarks.scale.long_model")]) as cluster:
        calls = Calls(cluster.bus)
        for tokens in TOKENS:
            for in_flight in IN_FLIGHT:
                await burst(cluster, calls, tokens, in_flight)
        cluster.print_peaks()


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    uvloop.run(run())


if __name__ == "__main__":
    main()
