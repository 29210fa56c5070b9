"""python -m benchmarks.pool: two engines, one four times faster than the other, asked by two replicas of `vllm_model`.

Prints how long rollouts took that all begin together, next to the time of both engines at full speed, and how many
rollouts both engines have met: once for rollouts of one call, then for rollouts of several.
"""

from __future__ import annotations

import argparse

import uvloop

from benchmarks.admission import collected
from benchmarks.engine import Speed, asked_of, engine_options, engines, reading
from gymq.protocol.instances import Instance

FAST, SLOW = Speed(1, 1 / 80), Speed(1, 1 / 20)
BOTH = 100  # calls a second
REPLICAS = 2


async def measure(rollouts: int, calls: int) -> tuple[float, float, int]:
    """Return the seconds from the first call to the last answer, the fast engine's share, and rollouts in both."""
    async with engines(FAST, SLOW) as urls:
        model = Instance("policy", "models", "vllm_model", {**engine_options(urls), "num_workers": REPLICAS})
        await collected(model, [reading(number, calls) for number in range(rollouts)])
        fast, slow = [await asked_of(url) for url in urls]
    took = max(fast.ended_at, slow.ended_at) - min(fast.began_at, slow.began_at)
    return took, fast.calls / (fast.calls + slow.calls), len({*fast.sessions} & {*slow.sessions})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pool")
    parser.add_argument("--calls", type=int, default=2000, help="in all (default 2000)")
    given = parser.parse_args()
    for calls in (2, 5, 20):
        rollouts = given.calls // calls
        took, share, moved = uvloop.run(measure(rollouts, calls))
        ratio = took / (rollouts * calls / BOTH)
        print(f"{rollouts:4} rollouts of {calls:2} calls: {took:.1f} s, {ratio:.2f} of the least time; ", end="")
        print(f"{share:.0%} by the fast engine, {moved} rollouts moved", flush=True)


if __name__ == "__main__":
    main()
