"""Metrics in Prometheus' form: queues, workers, and the outcomes of the newest runs.

Everything is read on request and nothing is counted in between, so metrics cost nothing unless they are scraped.
Numbers of runs are those of the profiler's checkpoints. A run that is no longer among the newest is no longer reported.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aiohttp import web

from gymq.errors import UsageError
from gymq.ext.nemo_gym.context import Context
from gymq.ext.shared.cluster_state import Overview, read_overview

if TYPE_CHECKING:
    from prometheus_client.core import Metric

NEEDS = "the setting `metrics` of the bridge needs a package: pip install 'gymq[observability]'"

_TOKENS = {"input_tokens": "input", "output_tokens": "output"}  # members of usage, and what they are called


class MetricsRoutes:
    def __init__(self, context: Context) -> None:
        """Import the client library of Prometheus.

        Raises:
            UsageError: the library is not installed.
        """
        try:
            import prometheus_client
        except ImportError:
            raise UsageError(NEEDS) from None
        self._context = context
        self._prometheus: Any = prometheus_client

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/metrics", self.metrics)]

    async def metrics(self, request: web.Request) -> web.Response:
        self._context.admit(request)
        found = await read_overview(self._context.bus, time.time(), 50)
        registry = self._prometheus.CollectorRegistry()
        registry.register(_Collector(found))
        headers = {"Content-Type": self._prometheus.CONTENT_TYPE_LATEST}
        return web.Response(body=self._prometheus.generate_latest(registry), headers=headers)


class _Collector:
    """Passes one look at the cluster to Prometheus' client."""

    def __init__(self, found: Overview) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        return families(self._found)


def families(found: Overview) -> Iterator[Metric]:
    """Yield the metrics of one look at the cluster."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    yield CounterMetricFamily("gymq_outcomes", "Outcomes stored, of all runs.", value=found.num_outcomes)
    yield GaugeMetricFamily("gymq_dead_letters", "Dead letters that are kept.", value=found.num_dead_letters)

    waiting = GaugeMetricFamily("gymq_tasks_waiting", "Tasks in the queue.", labels=["agent", "urgent"])
    in_flight = GaugeMetricFamily("gymq_tasks_in_hand", "Tasks that agents work on.", labels=["agent", "urgent"])
    for queue in found.queues:
        of = [queue.agent or "", str(queue.urgent).lower()]
        waiting.add_metric(of, queue.waiting)
        in_flight.add_metric(of, queue.in_flight)
    yield from (waiting, in_flight)

    labels = ["instance", "kind", "worker"]
    load = GaugeMetricFamily("gymq_worker_load", "Calls or tasks running or waiting in a process.", labels=labels)
    sessions = GaugeMetricFamily("gymq_worker_sessions", "Sessions that a process holds.", labels=labels)
    requests = CounterMetricFamily("gymq_worker_requests", "Calls or tasks a process has had.", labels=labels)
    errors = CounterMetricFamily("gymq_worker_errors", "Those that ended with an error.", labels=labels)
    for worker in found.workers:
        of = [worker.name, worker.kind, worker.worker]
        load.add_metric(of, worker.load)
        requests.add_metric(of, worker.requests)
        errors.add_metric(of, worker.errors)
        if worker.sessions is not None:
            sessions.add_metric(of, worker.sessions)
    yield from (load, sessions, requests, errors)

    labels = ["run", "agent"]
    rewarded = CounterMetricFamily("gymq_rollouts_rewarded", "Rollouts with a reward.", labels=labels)
    failed = CounterMetricFamily("gymq_attempts_failed", "Failed attempts.", labels=[*labels, "failure_class"])
    reward = GaugeMetricFamily("gymq_reward_mean", "Mean reward.", labels=labels)
    passed = GaugeMetricFamily("gymq_pass_ratio", "pass@k, from 0 to 1.", labels=[*labels, "k"])
    tokens = CounterMetricFamily("gymq_model_tokens", "Tokens of rewarded rollouts.", labels=[*labels, "direction"])
    for run in found.runs:
        for name, agent in run.agents.items():
            of = [run.run, name]
            rewarded.add_metric(of, agent.rollouts)
            for failure_class, count in agent.failed_attempts.items():
                failed.add_metric([*of, failure_class], count)
            if agent.mean_reward is not None:
                reward.add_metric(of, agent.mean_reward.value)
            for k, estimate in agent.pass_at_k.items():
                passed.add_metric([*of, str(k)], estimate.value / 100)
            for field, direction in _TOKENS.items():
                stats = agent.fields.get(field)
                if stats is not None:
                    tokens.add_metric([*of, direction], round(stats.mean * stats.count))
    yield from (rewarded, failed, reward, passed, tokens)
