"""The work of `gymq demo`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec

from gymq.config import Config, fingerprint
from gymq.data.jsonl import JsonlError, JsonlFile, atomic_write
from gymq.data.resume import Resume
from gymq.data.rows import AGENT_REF, RowError
from gymq.data.run_files import RunFiles, file_digest
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


def is_unfinished(output: Path, rows: Path, num_repeats: int, config: Config) -> bool:
    """Return whether an earlier demo of the same rollouts has some left, so that it is resumed and not replaced."""
    files = RunFiles(output)
    earlier = files.read_manifest()
    if earlier is None or earlier.settings.get("num_repeats") != num_repeats:
        return False
    if (earlier.input_digest, earlier.config_digest) != (file_digest(rows), fingerprint(config.tree)):
        return False
    try:
        with Resume(*map(JsonlFile, (files.materialised, files.output, files.failures))) as resume:
            return next(resume.to_run(), None) is not None
    except (JsonlError, RowError):
        return True  # killed before a file was made, or while a line was written
