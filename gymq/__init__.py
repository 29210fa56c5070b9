"""gymq: verifiable-reward rollouts for reinforcement learning over NATS.

The names here are what authors of agents, models and resources use. They load on first use, so that commands which
do not need them start fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymq.agent import Agent as Agent
    from gymq.agent import AgentOptions as AgentOptions
    from gymq.agent import Reply as Reply
    from gymq.agent import Rollout as Rollout
    from gymq.agent import Session as Session
    from gymq.authoring import OptionsError as OptionsError
    from gymq.authoring import Reference as Reference
    from gymq.authoring import WorkerOptions as WorkerOptions
    from gymq.messages import FailureClass as FailureClass
    from gymq.model import Model as Model
    from gymq.model import ModelLoad as ModelLoad
    from gymq.model import ModelRequest as ModelRequest
    from gymq.model import WeightsUpdate as WeightsUpdate
    from gymq.outcomes import ComponentFailed as ComponentFailed
    from gymq.outcomes import InvalidTask as InvalidTask
    from gymq.outcomes import JudgeFailed as JudgeFailed
    from gymq.outcomes import RolloutError as RolloutError
    from gymq.outcomes import ToolError as ToolError
    from gymq.resources import Resources as Resources
    from gymq.resources import Row as Row
    from gymq.resources import Verdict as Verdict
    from gymq.resources import VerifyRequest as VerifyRequest
    from gymq.resources import tool as tool

_HOME = {
    "Agent": "agent",
    "AgentOptions": "agent",
    "ComponentFailed": "outcomes",
    "FailureClass": "messages",
    "InvalidTask": "outcomes",
    "JudgeFailed": "outcomes",
    "Model": "model",
    "ModelLoad": "model",
    "ModelRequest": "model",
    "OptionsError": "authoring",
    "Reference": "authoring",
    "Reply": "agent",
    "Resources": "resources",
    "Rollout": "agent",
    "RolloutError": "outcomes",
    "Row": "resources",
    "Session": "agent",
    "ToolError": "outcomes",
    "Verdict": "resources",
    "VerifyRequest": "resources",
    "WeightsUpdate": "model",
    "WorkerOptions": "authoring",
    "tool": "resources",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'gymq' has no attribute {name!r}")
    value = getattr(import_module(f"gymq.{home}"), name)
    globals()[name] = value
    return value
