"""The evaluation harness: its report on an episode, that it took too long, or that it could not be run."""

from typing import Any

from gymq.workers.resources.mini_swe_agent.harness import EvaluationTimedOut

from gymq.failures import ComponentFailed

from ..scripted import ScriptedComponents


def install(author: Any, components: ScriptedComponents) -> None:
    async def evaluate(instance: dict[str, Any], _response: dict[str, Any]) -> Any:
        reply = components.next("swe_harness", instance, ComponentFailed)
        if "raise" in reply:
            raise ComponentFailed(reply["raise"])
        if reply.get("timed_out"):
            raise EvaluationTimedOut
        return reply["reply"]

    author.evaluate = evaluate
