"""Define the command `gymq demo`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import CollectArguments, Count, LogLevel, WorkerSources
from gymq.render import say
from gymq.workers import SHIPPED

SOURCE = SHIPPED / "examples" / "demo"
FOLDER = Path("runs") / "demo"
_PACKAGES = {"math_with_judge": "math_verify", "workplace_assistant": "dateutil"}  # that an installation may lack


def demo(*, num_repeats: Count = 16, log_level: LogLevel = "warning") -> int:
    """Run the demo: 225 tasks of four environments, with a simulated model. It needs no key and no network.

    The rollouts are written to `runs/demo/demo.jsonl`. The same command resumes a demo that was interrupted; any other
    earlier demo is replaced. An environment whose Python packages are not installed is left out.

    Args:
        num_repeats: rollouts per task.
    """
    from gymq.cli.collect import collect
    from gymq.cli.shared.configuration import read_config
    from gymq.config import fingerprint

    missing = [name for name, package in _PACKAGES.items() if importlib.util.find_spec(package) is None]
    for name in missing:
        needed = f"{_PACKAGES[name]} is not installed: pip install 'gymq[resources]'"
        say(f"{name} is left out of the demo: {needed}")
    left_out = [instance for name in missing for instance in (name, f"{name}_simple_agent")]
    sources, rows = WorkerSources(config=(SOURCE / "config.yaml",)), SOURCE / "rows.jsonl"
    if left_out:
        rows = _rows_without(left_out, rows)
    overrides, output = [f"~{name}" for name in left_out], FOLDER / "demo.jsonl"
    config_digest = fingerprint(read_config(sources, overrides).tree)
    options = CollectArguments(
        rows=rows,
        output=output,
        sources=sources,
        num_repeats=num_repeats,
        overwrite=not _is_unfinished(output, rows, num_repeats, config_digest),
        log_level=log_level,
    )
    return collect(*overrides, options=options)


def _rows_without(agents: list[str], rows: Path) -> Path:
    import msgspec

    from gymq.data.jsonl import JsonlFile, atomic_write
    from gymq.data.rows import AGENT_REF

    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "rows.jsonl"
    with atomic_write(kept) as file:
        for line in JsonlFile(rows):
            if msgspec.json.decode(line)[AGENT_REF]["name"] not in agents:
                file.write(line)
    return kept


def _is_unfinished(output: Path, rows: Path, num_repeats: int, config_digest: str) -> bool:
    """Return whether an earlier demo of the same rollouts has some left, so that it is resumed and not replaced."""
    from gymq.data.jsonl import JsonlError, JsonlFile
    from gymq.data.resume import Resume
    from gymq.data.rows import RowError
    from gymq.data.run_files import RunFiles, file_digest

    files = RunFiles(output)
    earlier = files.read_manifest()
    if earlier is None or earlier.settings.get("num_repeats") != num_repeats:
        return False
    if (earlier.input_digest, earlier.config_digest) != (file_digest(rows), config_digest):
        return False
    try:
        with Resume(*map(JsonlFile, (files.materialised, files.output, files.failures))) as resume:
            return next(resume.to_run(), None) is not None
    except (JsonlError, RowError):
        return True  # killed before a file was made, or while a line was written


DEMO = Command("Run", "Run the demo: four environments, a simulated model.", "gymq.ext.demo:demo")
