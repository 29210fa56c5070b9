"""The Lean sandbox, at the level of HTTP: what it is sent, and the status and body that it answers.

The commands that a hardened worker puts behind a program are no part of the case: they are taken off, and what a
compiler prints that comes to them is put behind the scripted output.
"""

import json
from typing import Any

from gymq.workers.resources.math_formal_lean.tests.lean_servers import FINISH, printed_at_the_end

from gymq.failures import ComponentFailed

from ..scripted import ScriptedComponents


def install(author: Any, components: ScriptedComponents) -> None:
    async def post(_url: str, body: dict[str, Any], _timeout_s: float) -> tuple[int, str]:
        program = body["generated_code"]
        finish = FINISH.search(program)
        if finish is not None:
            body = {**body, "generated_code": program[: finish.start()].removesuffix("\n\n")}
        reply = components.next("lean", body, ComponentFailed)
        if reply.get("raise") == "timeout":
            raise TimeoutError
        if "raise" in reply:
            raise ComponentFailed(reply["raise"])
        return reply["status"], reply["text"] if "text" in reply else json.dumps(_compiled(reply["json"], program))

    author.post = post


def _compiled(answer: Any, program: str) -> Any:
    if not isinstance(answer, dict) or not isinstance(answer.get("stdout"), str):
        return answer
    return {**answer, "stdout": answer["stdout"] + "\n".join(["", *printed_at_the_end(program)]).removeprefix("\n")}
