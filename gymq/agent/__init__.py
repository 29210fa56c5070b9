"""Agent: the loop that turns a task into a verified rollout, as an author writes it.

A loop takes everything that can differ between two runs (model replies, tool results, verdicts) from `Rollout` and
`Session`. They give every effect a key, so that the loop can be replayed over recorded effects.
"""

from gymq.agent.agent import Agent, OwnVerifier, run_to_verdict
from gymq.agent.calls import Caller, Recorder
from gymq.agent.options import AgentOptions
from gymq.agent.rollout import Reply, Rollout, StalenessCheck, checked_response
from gymq.agent.session import RESERVED_TOOL_NAMES, Session

__all__ = [
    "RESERVED_TOOL_NAMES",
    "Agent",
    "AgentOptions",
    "Caller",
    "OwnVerifier",
    "Recorder",
    "Reply",
    "Rollout",
    "Session",
    "StalenessCheck",
    "checked_response",
    "run_to_verdict",
]
