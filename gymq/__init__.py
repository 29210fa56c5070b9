"""gymq: verifiable-reward rollouts for reinforcement learning over NATS.

The names here are what authors of environments, agents and models use, and what a notebook needs. They load on first
use, so that commands which do not need them start fast.
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
    from gymq.errors import GymqError as GymqError
    from gymq.failures import ComponentFailed as ComponentFailed
    from gymq.failures import InvalidTask as InvalidTask
    from gymq.failures import JudgeFailed as JudgeFailed
    from gymq.failures import RolloutError as RolloutError
    from gymq.failures import ToolError as ToolError
    from gymq.judge import Judge as Judge
    from gymq.judge import JudgedEnvironment as JudgedEnvironment
    from gymq.judge import JudgeOptions as JudgeOptions
    from gymq.judge import PromptTemplate as PromptTemplate
    from gymq.judge import Rubric as Rubric
    from gymq.model import Model as Model
    from gymq.model import ModelLoad as ModelLoad
    from gymq.model import ModelRequest as ModelRequest
    from gymq.model import WeightsUpdate as WeightsUpdate
    from gymq.protocol.messages import FailureClass as FailureClass
    from gymq.resources import Environment as Environment
    from gymq.resources import Resources as Resources
    from gymq.resources import Row as Row
    from gymq.resources import RowsWanted as RowsWanted
    from gymq.resources import Verdict as Verdict
    from gymq.resources import VerifyRequest as VerifyRequest
    from gymq.resources import tool as tool
    from gymq.resources.asking_environment import AskingEnvironment as AskingEnvironment
    from gymq.resources.asking_environment import Policy as Policy
    from gymq.resources.text_environment import Episode as Episode
    from gymq.resources.text_environment import StepResult as StepResult
    from gymq.resources.text_environment import TextEnvironment as TextEnvironment
    from gymq.responses import FunctionCall as FunctionCall
    from gymq.responses import FunctionCallOutput as FunctionCallOutput
    from gymq.responses import OutputItem as OutputItem
    from gymq.responses import OutputMessage as OutputMessage
    from gymq.responses import Response as Response
    from gymq.runs.collection.evaluation import acollect as acollect
    from gymq.runs.collection.evaluation import collect as collect
    from gymq.runs.collection.results import RunResult as RunResult
    from gymq.runs.collection.results import load as load
    from gymq.sandboxed import SandboxedEnvironment as SandboxedEnvironment
    from gymq.testing import Harness as Harness
    from gymq.testing import ScriptedModel as ScriptedModel
    from gymq.testing.agent_harness import AgentHarness as AgentHarness
    from gymq.trainer.run import TrainingRun as TrainingRun
    from gymq.trainer.sync import SyncTrainingRun as SyncTrainingRun

    __version__: str

_NAMES = {
    "agent": "Agent AgentOptions Reply Rollout Session",
    "authoring": "OptionsError Reference WorkerOptions",
    "errors": "GymqError",
    "failures": "ComponentFailed InvalidTask JudgeFailed RolloutError ToolError",
    "judge": "Judge JudgeOptions JudgedEnvironment PromptTemplate Rubric",
    "model": "Model ModelLoad ModelRequest WeightsUpdate",
    "protocol.messages": "FailureClass",
    "resources": "Environment Resources Row RowsWanted Verdict VerifyRequest tool",
    "resources.asking_environment": "AskingEnvironment Policy",
    "resources.text_environment": "Episode StepResult TextEnvironment",
    "responses": "FunctionCall FunctionCallOutput OutputItem OutputMessage Response",
    "runs.collection.evaluation": "acollect collect",
    "runs.collection.results": "RunResult load",
    "sandboxed": "SandboxedEnvironment",
    "testing": "Harness ScriptedModel",
    "testing.agent_harness": "AgentHarness",
    "trainer.run": "TrainingRun",
    "trainer.sync": "SyncTrainingRun",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # slow to import, and few ask

        return version("gymq")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'gymq' has no attribute {name!r}")
    value = getattr(import_module(f"gymq.{home}"), name)
    globals()[name] = value
    return value
