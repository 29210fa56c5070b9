"""The experiments as tools: one for each module, with the arguments that its systems take."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pydantic

import gymq
from gymq.resources import Tool
from workers.resources.newton_bench.laws import MODULES, Module

if TYPE_CHECKING:
    from workers.resources.newton_bench.worker import Investigation

PREFIX = "run_experiment_"

_SMALLEST_NOISE = 1e-12


def experiment_tools() -> dict[str, Tool]:
    """The tools by their names."""
    return {f"{PREFIX}{module.name}": _tool(module) for module in MODULES.values()}


def measured(investigation: Investigation, arguments: dict[str, float | None]) -> float | None:
    """The law's value at the arguments, with noise; None where it has none."""
    values = {}
    for name, parameter in investigation.module.parameters.items():
        given = arguments.get(parameter.argument or name)
        value = parameter.default if given is None else given
        assert value is not None
        values[name] = value
    value = investigation.law(values)
    level = investigation.row.noise_level
    if level > 0 and math.isfinite(value):
        value = random.gauss(value, max(abs(value) * level, _SMALLEST_NOISE))
    return value if math.isfinite(value) else None


def _tool(module: Module) -> Tool:
    async def run(_resources: Any, state: Investigation, **arguments: float | None) -> dict[str, float | None]:
        state.check_open()
        if state.module is not module:
            raise gymq.ToolError(400, f"this session is about {state.module.name}, not {module.name}")
        return {"result": measured(state, arguments)}

    fields: dict[str, Any] = {}
    for name, parameter in module.parameters.items():
        required = parameter.default is None
        kind = (float, ...) if required else (float | None, None)
        fields[parameter.argument or name] = kind
    fields |= dict.fromkeys(module.other_arguments, (float | None, None))
    run.__doc__ = f"Measure the {module.result}."
    name = f"{PREFIX}{module.name}"
    return Tool(name, run, takes_state=True, arguments=pydantic.create_model(f"{name}_arguments", **fields))
