"""The rows of a `datasets` block made ready: found, fetched from the Hugging Face Hub, or made by its script."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gymq.config.dataset_blocks import DatasetBlock
from gymq.data.datasets import HUB, Dataset, hub
from gymq.data.jsonl import JsonlError, JsonlFile, atomic_write, parse_object
from gymq.errors import UsageError
from gymq.extensions import extensions
from gymq.failures import ComponentFailed
from gymq.processes.passed_environment import passed
from gymq.sandbox import GIB, Limits, LocalSandbox, Program, ProgramResult, run_command

_LIMITS = Limits(
    time_s=1800.0,
    memory_bytes=8 * GIB,
    processes=64,
    file_bytes=4 * GIB,
    disk_bytes=8 * GIB,
    output_bytes=1 * GIB,
)
_INSIDE = "/prepare"
_RUNNER = Path(__file__).with_name("prepare_runner.py")


async def prepare(block: DatasetBlock, *, with_network: bool = False, again: bool = False) -> Path:
    """Make the rows of a block ready.

    Args:
        with_network: whether its script may use the network; it then runs as this user, without a sandbox.
        again: whether rows that are there are made again.

    Returns:
        The file of the rows.

    Raises:
        UsageError, ConfigError, JsonlError: the message says why they cannot be made.
    """
    target = block.rows()
    if target.is_file() and not again:
        return target
    target = Path(block.file)
    try:
        if block.source is not None:
            return _write(block, target, _rows_of_hub(block))
        script = block.script()
        if script is None:
            raise UsageError(
                f"data set {block.name}: {block.file} does not exist, and the block has neither a `prepare_script` nor "
                "a `source` of the type huggingface"
            )
        with tempfile.TemporaryDirectory(prefix="gymq-prepare-", ignore_cleanup_errors=True) as folder:
            made = Path(folder) / "rows.jsonl"
            await (_run_here if with_network else _run_in_sandbox)(block, script.absolute(), made)
            return _write(block, target, JsonlFile(made))
    except (OSError, ComponentFailed) as error:
        raise UsageError(f"data set {block.name}: {error}") from None


def _rows_of_hub(block: DatasetBlock) -> Iterator[bytes]:
    assert block.source is not None
    if block.source.artifact is not None:
        file = hub().fetch_file(block.source.repository, block.source.artifact)
        return iter(JsonlFile(file))
    split = "validation" if block.kind == "validation" else "train"
    return iter(Dataset(Path(f"{HUB}{block.source.repository}:{split}")))


def _write(block: DatasetBlock, target: Path, rows: Iterator[bytes] | JsonlFile) -> Path:
    """Write rows to their file, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with atomic_write(target) as file:
        for line in rows:
            try:
                parse_object(line)
            except JsonlError as error:
                raise UsageError(f"data set {block.name}: row {count + 1}: {error}") from None
            file.write(line if line.endswith(b"\n") else line + b"\n")
            count += 1
        if not count:
            raise UsageError(f"data set {block.name}: no rows were made")
    return target


def _packages() -> list[Path]:
    """Return the folders of packages that scripts may import: the entry points `gymq.script_packages`."""
    return [found.load() for found in extensions("script_packages")]


async def _run_in_sandbox(block: DatasetBlock, script: Path, made: Path) -> None:
    sandbox = LocalSandbox()
    folder = f"{_INSIDE}/{script.parent.parent.name}/{script.parent.name}"
    names = {
        file.relative_to(packages).as_posix(): file.read_bytes()
        for packages in _packages()
        for file in packages.rglob("*.py")
    }
    program = Program(
        (sandbox.python, _RUNNER.name, f"{folder}/{script.name}", "-"),
        files={_RUNNER.name: _RUNNER.read_bytes(), **names},
        folders={folder: str(script.parent.resolve())},  # the sandbox follows no link of this machine
    )
    async with sandbox:
        ended = await sandbox.run(program, _LIMITS)
    _check(block, script, ended, "; if it needs the network, --network runs it as you, without a sandbox")
    await asyncio.to_thread(made.write_bytes, ended.stdout)


async def _run_here(block: DatasetBlock, script: Path, made: Path) -> None:
    import_path = os.pathsep.join(map(str, _packages()))
    environment = passed("model", os.environ) | {"PYTHONPATH": import_path}  # with the token of the Hub
    ended = await run_command([sys.executable, str(_RUNNER), str(script), str(made)], wall_s=3600.0, env=environment)
    _check(block, script, ended, "")


def _check(block: DatasetBlock, script: Path, ended: ProgramResult, hint: str) -> None:
    if ended.exit_status != 0 or ended.limit is not None:
        lines = ended.last_words.strip().splitlines()
        last = f": {lines[-1][:300]}" if lines else ""
        raise UsageError(f"data set {block.name}: {script} {ended.how}{last}{hint}")
