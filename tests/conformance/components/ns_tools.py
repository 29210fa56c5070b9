"""Tools and verifiers of ns_tools that answer from a case's script."""

from typing import Any

from gymq.workers.resources.ns_tools.worker import NsTools

import gymq
from gymq.failures import ComponentFailed, JudgeFailed

from ..scripted import ScriptedComponents


def install(author: NsTools, components: ScriptedComponents) -> None:
    async def execute(_state: Any, name: str, arguments: Any) -> Any:
        reply = components.next("tool", {"name": name, "arguments": arguments}, RuntimeError)
        if reply.get("raise") == "timeout":
            raise TimeoutError
        if "raise" in reply:
            raise RuntimeError(reply["raise"])
        return reply["reply"]

    author.execute = execute  # type: ignore[method-assign, assignment]
    author.check_tool = lambda name: None  # type: ignore[method-assign]
    author.make_verifier = lambda name, options: ScriptedVerifier(components)  # type: ignore[assignment, method-assign, return-value]


class ScriptedVerifier:
    def __init__(self, components: ScriptedComponents) -> None:
        self._components = components

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def answer(self, request: gymq.VerifyRequest[Any]) -> dict[str, Any]:
        reply = self._components.next("verifier", {}, ComponentFailed)
        if "raise" in reply:
            raise ComponentFailed(reply["raise"])
        answer = reply["reply"]
        if isinstance(answer, dict) and answer.get("_ng_failure_class") == "judge_failed":
            raise JudgeFailed(str(answer))
        if not isinstance(answer, dict) or not isinstance(answer.get("reward"), int | float):
            raise ComponentFailed("the verifier's answer has no reward")
        return answer
