"""A sandbox of swerl_gen that answers from a case's script."""

from typing import Any

from gymq.workers.resources.swerl_gen.container import instance_of
from gymq.workers.resources.swerl_gen.edits import Repair
from gymq.workers.resources.swerl_gen.grading import AS_MEANT, PUBLISHED, Resolution, resolution_of
from gymq.workers.resources.swerl_gen.reproduction import new_file_patch
from gymq.workers.resources.swerl_gen.worker import SwerlGen

from gymq.failures import ComponentFailed

from ..scripted import ScriptedComponents


def install(author: SwerlGen, components: ScriptedComponents) -> None:
    def answer(mode: str, image: str, **others: Any) -> dict[str, Any]:
        timeout = author.options.sandbox_timeout
        call = {"mode": mode, "image": image, "timeout": timeout, **others}
        reply = components.next("sandbox", call, ComponentFailed)
        if "raise" in reply:
            raise ComponentFailed(reply["raise"])
        if reply.get("timed_out"):
            raise TimeoutError
        return reply

    async def evaluate(instance: dict[str, Any], image: str, repair: Repair) -> Resolution:
        reply = answer("eval", image, patch=repair.patch)
        if "resolution" in reply:
            return reply["resolution"]
        log = "\n".join(reply[name] for name in ("setup_output", "apply_output", "test_output"))
        issue = instance_of(instance)
        rule = AS_MEANT if author.options.hardened else PUBLISHED
        return resolution_of(log, issue.repo, issue.FAIL_TO_PASS, issue.PASS_TO_PASS, rule=rule)

    async def reproduce(instance: dict[str, Any], image: str, name: str, script: str) -> tuple[list[int], list[int]]:
        test_patch = new_file_patch(name, script)
        reply = answer("repro-gen", image, patch=instance.get("patch"), test_patch=[test_patch])
        return reply["return_codes_before"], reply["return_codes_after"]

    author.evaluate = evaluate  # type: ignore[method-assign]
    author.reproduce = reproduce  # type: ignore[method-assign]
