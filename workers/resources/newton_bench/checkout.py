"""Experiments with the systems around the laws. They are part of NewtonBench and run from a checkout of it."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from typing import Any

import gymq
from gymq.processes import KillableProcesses

OTHER_SYSTEMS = ("simple_system", "complex_system")


class Checkout:
    """A folder with NewtonBench, whose requirements have to be installed.

    Raises:
        OptionsError: the folder holds no NewtonBench.
    """

    def __init__(self, folder: str, timeout_s: float) -> None:
        """
        Args:
            timeout_s: seconds for one experiment.
        """
        if not (Path(folder) / "modules" / "common").is_dir():
            raise gymq.OptionsError(
                f"newton_bench_path: {folder} is not a checkout of NewtonBench: it has no modules/common"
            )
        self._folder = folder
        self._timeout_s = timeout_s

    async def measured(self, processes: KillableProcesses, module: str, setting: dict[str, Any]) -> Any:
        """Return the measurements of an experiment; `{"error": text}` if it fails.

        Args:
            setting: noise level, difficulty, system and law version, and the experiment's arguments.

        Raises:
            ComponentFailed: the checkout cannot be used.
        """
        try:
            return await processes.run(self._timeout_s, _run, self._folder, module, setting)
        except ImportError as error:
            raise gymq.ComponentFailed(f"the checkout of NewtonBench cannot be imported: {error}") from None
        except TimeoutError:
            return {"error": f"the experiment took longer than {self._timeout_s:g} s"}


def _run(folder: str, module: str, setting: dict[str, Any]) -> Any:
    """Run in a separate process."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    core = importlib.import_module(f"modules.{module}.core")
    try:
        return _plain(core.run_experiment_for_module(**setting))
    except Exception as error:
        return {"error": str(error)}


def _plain(value: Any) -> Any:
    """Return the value as JSON, without numpy's types; None for numbers that are not finite."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
