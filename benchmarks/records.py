"""python -m benchmarks.records: what a trainer takes to join the tokens of a rollout, by its number of model calls.

The floor is a rollout of one call with as many tokens.
"""

from __future__ import annotations

import time
import tracemalloc
from array import array

from gymq.data.records import Record
from gymq.data.trainer_results import result_fields
from gymq.protocol.messages import VerifiedRollout
from gymq.protocol.tokens import TokenChain

CALLS = (10, 50, 200, 500, 2000)
PER_CALL = 256  # tokens, half of them sampled
ROUNDS = 5


def main() -> None:
    """Print a table."""
    print(f"{'calls':>6} {'tokens':>8} {'µs/token':>9} {'floor':>6} {'ratio':>6} {'bytes/token':>12} {'floor':>6}")
    for calls in CALLS:
        tokens = calls * PER_CALL
        took, floor = (min(_seconds(one) for _ in range(ROUNDS)) for one in (rollout(calls), rollout(1, tokens)))
        memory, least = _peak_bytes(rollout(calls)), _peak_bytes(rollout(1, tokens))
        times = f"{1e6 * took / tokens:9.2f} {1e6 * floor / tokens:6.2f} {took / floor:6.2f}"
        print(f"{calls:6} {tokens:8} {times} {memory / tokens:12.0f} {least / tokens:6.0f}", flush=True)


def rollout(calls: int, per_call: int = PER_CALL) -> VerifiedRollout:
    """Return an outcome as it is read from the store: the prompt of a call refers to the calls before it."""
    chain, output = TokenChain(None), []
    seen = array("i")
    for _ in range(calls):
        seen.extend(range(1000, 1000 + per_call // 2))
        sampled = array("i", range(5000, 5000 + per_call // 2))
        log_probs = array("f", [-0.5]) * len(sampled)
        item = {"type": "message", "role": "assistant", "content": [], "prompt_token_ids": seen[:]}
        item |= {"generation_token_ids": sampled, "generation_log_probs": log_probs}
        chain, items = chain.after([item])
        output += items
        seen.extend(sampled)
    response = {"id": "r", "object": "response", "output": output}
    return VerifiedRollout(
        run="r", task_index=0, rollout_index=0, agent="a", row=b"{}", response=response, reward=1.0, verdict={}
    )


def _seconds(outcome: VerifiedRollout) -> float:
    started = time.perf_counter()
    Record.of(result_fields(outcome, "error"))
    return time.perf_counter() - started


def _peak_bytes(outcome: VerifiedRollout) -> int:
    tracemalloc.start()
    Record.of(result_fields(outcome, "error"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    main()
