"""The experiments as tools: one for each module, with the arguments that its systems take."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pydantic
from gymq.workers.resources.newton_bench.checkout import OTHER_SYSTEMS
from gymq.workers.resources.newton_bench.laws import MODULES, Module

import gymq
from gymq.resources import Tool

if TYPE_CHECKING:
    from gymq.workers.resources.newton_bench.worker import Investigation, NewtonBench

PREFIX = "run_experiment_"

_SMALLEST_NOISE = 1e-12
_COUNTS = {"num_points"}


def experiment_tools() -> dict[str, Tool]:
    """Return the tools by their names."""
    return {f"{PREFIX}{module.name}": _tool(module) for module in MODULES.values()}


def measured(investigation: Investigation, arguments: dict[str, float]) -> float | None:
    """Return the law's value at the arguments, with noise; None where it has none."""
    values = {}
    for name, parameter in investigation.module.parameters.items():
        value = arguments.get(parameter.argument or name, parameter.default)
        assert value is not None
        values[name] = value
    value = investigation.law(values)
    level = investigation.row.noise_level
    if level > 0 and math.isfinite(value):
        value = random.gauss(value, max(abs(value) * level, _SMALLEST_NOISE))
    return value if math.isfinite(value) else None


def _tool(module: Module) -> Tool:
    async def run(resources: NewtonBench, state: Investigation, **arguments: float | None) -> dict[str, Any]:
        state.check_open()
        if state.module is not module:
            raise gymq.ToolError(400, f"this session is about {state.module.name}, not {module.name}")
        # Values that are missing or null take the experiment's default.
        given = {name: value for name, value in arguments.items() if value is not None}
        if state.row.system in OTHER_SYSTEMS:
            return {"result": await resources.measured_in_checkout(state, given)}
        return {"result": measured(state, given)}

    fields: dict[str, Any] = {}
    for name, parameter in module.parameters.items():
        required = parameter.default is None
        kind = (float, ...) if required else (float | None, None)
        fields[parameter.argument or name] = kind
    for name in module.other_arguments:
        fields[name] = (int | None if name in _COUNTS else float | None, None)
    run.__doc__ = f"Measure the {module.result}."
    name = f"{PREFIX}{module.name}"
    return Tool(name, run, takes_state=True, arguments=pydantic.create_model(f"{name}_arguments", **fields))
