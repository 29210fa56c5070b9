"""The work of `gymq demo`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec

from gymq.data.jsonl import JsonlFile, atomic_write
from gymq.data.rows import AGENT_REF
from gymq.render import say
from gymq.workers import SHIPPED

SOURCE = SHIPPED / "examples" / "demo"
FOLDER = Path("runs") / "demo"
_PACKAGES = {"math_with_judge": "math_verify", "workplace_assistant": "dateutil"}  # that an installation may lack


def left_out_here() -> list[str]:
    """Return the environments whose package is not installed, each with its agent, and print a line for each."""
    missing = [name for name, package in _PACKAGES.items() if importlib.util.find_spec(package) is None]
    for name in missing:
        needed = f"{_PACKAGES[name]} is not installed: pip install 'gymq[resources]'"
        say(f"{name} is left out of the demo: {needed}")
    return [instance for name in missing for instance in (name, f"{name}_simple_agent")]


def rows_without(agents: list[str], rows: Path) -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "rows.jsonl"
    with atomic_write(kept) as file:
        for line in JsonlFile(rows):
            if msgspec.json.decode(line)[AGENT_REF]["name"] not in agents:
                file.write(line)
    return kept
