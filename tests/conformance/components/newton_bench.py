"""An evaluation of newton_bench's laws that answers from a case's script, where the case has one."""

import math

from gymq.workers.resources.newton_bench.laws import Module
from gymq.workers.resources.newton_bench.submission import NotEvaluated
from gymq.workers.resources.newton_bench.worker import Evaluation, NewtonBench

from ..scripted import ScriptedComponents


def install(author: NewtonBench, components: ScriptedComponents) -> None:
    if components.constant("engine") is None:
        return

    async def evaluate_law(law: str, _module: Module, difficulty: str, version: str) -> Evaluation:
        call = {"call": "evaluate_law", "law": law, "difficulty": difficulty, "law_version": version}
        reply = components.next("engine", call, NotEvaluated)
        if "raise" in reply:
            raise NotEvaluated(reply["raise"])
        outcome = reply["reply"]
        error = outcome.get("rmsle")
        if error is not None:
            error = float(error) if math.isfinite(float(error)) else None
        return Evaluation(
            error, outcome.get("symbolic_equivalent"), outcome.get("exact_accuracy"), outcome.get("error")
        )

    author.evaluate_law = evaluate_law  # type: ignore[method-assign, assignment]
