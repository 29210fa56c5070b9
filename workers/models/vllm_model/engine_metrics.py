"""Reading what an engine says of its load, in the texts that vLLM, SGLang, TensorRT-LLM and Dynamo have for Prometheus.

vLLM and SGLang have them at `/metrics`, SGLang if it is started with `--enable-metrics`, and so does Dynamo's frontend.
TensorRT-LLM has them at `/prometheus/metrics`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

_MOST = 2**53  # of anything that is counted; more is a mistake
_PREFIXES = ("vllm:", "sglang:", "trtllm_", "dynamo_frontend_")
_RANK_LABELS = ("engine", "dp_rank", "model")  # whose series add up; those of tensor parallel ranks say the same
_PART_LABELS = ("priority", "reason")  # of series that are parts of another one

_RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running")
_WAITING = (
    "vllm:num_requests_waiting",
    "sglang:num_queue_reqs",
    "trtllm_num_requests_waiting",
    "dynamo_frontend_router_queue_pending_requests",
)
_IN_FLIGHT = ("dynamo_frontend_active_requests", "dynamo_frontend_inflight_requests")  # running and waiting
_CACHE_USE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "trtllm_kv_cache_utilization",
)
_CACHE_TOKENS = "sglang:max_total_num_tokens"
_CACHE_BLOCKS = ("trtllm_kv_cache_max_blocks", "trtllm_kv_cache_tokens_per_block")
_CACHE_INFO = "vllm:cache_config_info"


@dataclass(frozen=True)
class EngineReport:
    """The load of an engine, all its data parallel ranks together."""

    running: int  # requests it works on
    waiting: int  # requests it has not begun
    kv_cache_use: float = 0.0  # share of the KV cache that is taken, of the fullest rank, 0 to 1
    kv_cache_tokens: int = 0  # that the KV cache holds, also between calls; 0: unknown, or it keeps no prefixes
    is_paused: bool = False  # it takes requests, and begins none


def read_metrics(text: str) -> EngineReport | None:
    """Return the load that a text in the format of Prometheus states; None if it has no series of an engine."""
    ranks: defaultdict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    cache_info: dict[str, str] = {}  # the labels by rank
    for name, labels, value in _samples(text):
        if any(_label(labels, part) for part in _PART_LABELS):
            continue
        rank = tuple(_label(labels, label) for label in _RANK_LABELS)
        ranks[name][rank] = max(value, ranks[name].get(rank, 0.0))
        if name == _CACHE_INFO:
            cache_info[rank[0]] = labels
    totals = {name: sum(of_rank.values()) for name, of_rank in ranks.items()}

    def first(names: tuple[str, ...]) -> float | None:
        return next((totals[name] for name in names if name in totals), None)

    running, waiting, in_flight = first(_RUNNING), first(_WAITING), first(_IN_FLIGHT)
    if running is None and in_flight is None:
        return None
    waiting = waiting or 0.0
    if running is None:
        running = max(0.0, (in_flight or 0.0) - waiting)
    used = next((max(ranks[name].values()) for name in _CACHE_USE if name in ranks), 0.0)
    blocks, tokens_per_block = (ranks.get(name, {}) for name in _CACHE_BLOCKS)
    tokens = totals.get(_CACHE_TOKENS, 0.0) + sum(blocks[rank] * tokens_per_block.get(rank, 0.0) for rank in blocks)
    return EngineReport(int(running), int(waiting), min(1.0, used), int(tokens) + _cache_tokens(cache_info))


def _cache_tokens(info: dict[str, str]) -> int:
    """Return what vLLM's ranks hold. Each states its own tokens, or else the blocks of all."""
    if any(_label(labels, "enable_prefix_caching") == "False" for labels in info.values()):
        return 0
    of_ranks = [_number(labels, "kv_cache_size_tokens") for labels in info.values()]
    if all(of_ranks):
        return sum(of_ranks)
    blocks = (_number(labels, "num_gpu_blocks") * _number(labels, "block_size") for labels in info.values())
    return max(blocks, default=0)


def _samples(text: str) -> Iterator[tuple[str, str, float]]:
    """Yield the name, the labels with a comma before each, and the value of each sample of an engine."""
    for line in text.splitlines():
        if not line.startswith(_PREFIXES):
            continue
        head, has_labels, rest = line.rpartition("}")
        name, _, labels = head.partition("{")
        if not has_labels:
            name, _, rest = line.partition(" ")
        try:
            value = float(rest.split()[0])
        except (ValueError, IndexError):
            continue
        if 0.0 <= value <= _MOST:
            yield name, "," + labels.replace('", ', '",'), value


def _label(labels: str, name: str) -> str:
    """Return the value of a label, whose text has no escapes; empty if there is none."""
    return labels.partition(f',{name}="')[2].partition('"')[0]


def _number(labels: str, name: str) -> int:
    value = _label(labels, name)
    return int(value) if value.isdecimal() and len(value) < len(str(_MOST)) else 0
