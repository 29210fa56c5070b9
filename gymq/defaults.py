"""Defaults and choices that the command line shows, apart from what uses them, so that its help starts fast.

Those of a worker are in its class: `gymq.Agent.max_concurrency`, `gymq.AgentOptions`, `gymq.Resources.session_ttl_s`.
"""

from typing import Literal

DEFAULT_WINDOW = 1024  # rollouts submitted and not finished
SCORE_CONCURRENCY = 64  # stored rollouts verified at the same time
MAX_VERSIONS = 1000  # policy versions of the past that are remembered
PASS_THRESHOLD = 1.0  # smallest reward with which a rollout passes
MAX_TIMEOUT_S = 30 * 24 * 3600  # what a task's time limit can be
CONFIRM_S = 600.0  # for the replicas of a model to load weights

Kind = Literal["agents", "models", "resources"]
"""A kind of worker, in code, in `workers/` and in the metadata of a running worker."""

ClusterPart = Literal[Kind, "services"]
"""What `gymq up --only` starts: the workers of a kind, or the services."""

Layout = Literal["kinds", "cells"]
"""Which light workers share a process: those of a kind, or an agent and all that it calls."""

TokenForm = Literal["full", "chain", "none"]
"""The form of token ids in a file, see `gymq.protocol.token_forms`."""

WeightsMode = Literal["keep", "wait", "abort"]
"""What becomes of requests that run when new weights come."""

InFlight = Literal["continue", "restart", "finish"]
"""What becomes of rollouts that run when new weights come."""
