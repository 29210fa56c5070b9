"""Record the load that vLLM reports at every step. Imports vLLM."""

from __future__ import annotations

from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase


class LoadRecorder(StatLoggerBase):
    """Keeps the latest figures of each rank, and the sums of its prefix cache."""

    def __init__(self) -> None:
        self._ranks: dict[int, Any] = {}
        self.prefix_queries = 0  # tokens of prompts
        self.prefix_hits = 0  # of them, tokens found in the cache

    def factory(self, _config: object, _rank: int = 0) -> LoadRecorder:
        """Return what vLLM makes its loggers with, one a rank."""
        return self

    def record(self, scheduler_stats: Any, *_: object, engine_idx: int = 0, **__: object) -> None:
        if scheduler_stats is None:  # the front end alone has something to tell
            return
        self._ranks[engine_idx] = scheduler_stats
        self.prefix_queries += scheduler_stats.prefix_cache_stats.queries
        self.prefix_hits += scheduler_stats.prefix_cache_stats.hits

    def log_engine_initialized(self) -> None:
        pass

    @property
    def running(self) -> int:
        """Requests that were worked on in the last step."""
        return sum(rank.num_running_reqs for rank in self._ranks.values())

    @property
    def kv_cache_use(self) -> float:
        """Of the rank that has the least room left, 0 to 1."""
        return max((rank.kv_cache_usage for rank in self._ranks.values()), default=0.0)
