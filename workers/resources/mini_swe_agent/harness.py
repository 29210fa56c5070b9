"""Running the tests of an instance with SWE-bench (https://github.com/SWE-bench/SWE-bench), in a container."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import gymq
from gymq.sandbox import run_command

COMMAND = (sys.executable, "-m", "swebench.harness.run_evaluation")
MODULE = "swebench"
SETUP_S = 3600.0  # an image may have to be pulled, which the limit on the tests does not count

# What swebench writes into the log of an instance, version 4 and 5. No report is written then.
_NOT_APPLIED = ">>>>> Patch Apply Failed"
_TIMED_OUT = "Test timed out after"

MAX_EXCERPT = 400


class EvaluationTimedOut(gymq.GymqError):
    """The tests took longer than their time limit."""


class Harness:
    """Runs `swebench.harness.run_evaluation`, a process for each evaluation.

    Args:
        timeout_s: seconds the tests of one instance may take.
        max_concurrency: evaluations at a time.
    """

    def __init__(self, timeout_s: int, max_concurrency: int) -> None:
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(max_concurrency)

    async def evaluate(self, instance: dict[str, Any], patch: str) -> dict[str, Any] | None:
        """`{"eval_report": ...}` for a patch; None if there is nothing to test, or the patch does not apply.

        Args:
            instance: a row of SWE-bench, with `instance_id`.

        Raises:
            EvaluationTimedOut
            ComponentFailed: the harness could not run the tests.
        """
        if not patch.strip():
            return None
        if importlib.util.find_spec(MODULE) is None:
            raise gymq.ComponentFailed(f"{MODULE} is not installed where this worker runs: pip install {MODULE}")
        async with self._slots:
            with tempfile.TemporaryDirectory(prefix="gymq-swe-") as folder:
                return await self._run(Path(folder), instance, patch)

    async def _run(self, folder: Path, instance: dict[str, Any], patch: str) -> dict[str, Any] | None:
        name = instance["instance_id"]
        prediction = {"instance_id": name, "model_name_or_path": "policy", "model_patch": patch}
        (folder / "dataset.json").write_text(json.dumps([instance]))
        (folder / "predictions.json").write_text(json.dumps([prediction]))
        options = {
            "--dataset_name": "dataset.json",
            "--predictions_path": "predictions.json",
            "--instance_ids": name,
            "--run_id": folder.name,  # it is part of the container's name
            "--timeout": str(self._timeout_s),
            "--max_workers": "1",
        }
        command = [*COMMAND, *(word for option in options.items() for word in option)]
        limit_s = self._timeout_s + SETUP_S
        is_killed = True
        try:
            ended = await run_command(command, wall_s=limit_s, env=os.environ, cwd=folder)
            is_killed = ended.limit is not None
        finally:
            if is_killed:
                await asyncio.shield(_remove_containers(folder.name))
        if is_killed:
            raise gymq.ComponentFailed(f"the harness did not end within {limit_s:g} s")
        return _outcome(folder, name, (ended.stdout + ended.stderr).decode(errors="replace"))


async def _remove_containers(run_id: str) -> None:
    """Remove what a harness that was killed could not."""
    with contextlib.suppress(gymq.ComponentFailed):
        listed = await run_command(["docker", "ps", "--all", "--quiet", "--filter", f"name={run_id}"], env=os.environ)
        if containers := listed.stdout.decode().split():
            await run_command(["docker", "rm", "--force", "--volumes", *containers], env=os.environ)


def _outcome(folder: Path, name: str, said: str) -> dict[str, Any] | None:
    """Return the report in a folder; None if the patch did not apply. See `Harness.evaluate` for what is raised."""
    for path in folder.glob("logs/run_evaluation/**/report.json"):
        report = _read(path)
        if _is_fault_of_the_container(report, name):
            raise gymq.ComponentFailed(f"the container of {name} has a fault: {json.dumps(report)[:MAX_EXCERPT]}")
        return {"eval_report": report}
    logs = sorted(folder.glob("logs/run_evaluation/**/run_instance.log"))
    log = "".join(path.read_text(errors="replace") for path in logs)
    if _NOT_APPLIED in log:
        return None
    if _TIMED_OUT in log:
        raise EvaluationTimedOut
    excerpt = (log or said).strip()[-MAX_EXCERPT:]
    raise gymq.ComponentFailed(f"the harness made no report on {name}: {excerpt or 'it said nothing'}")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise gymq.ComponentFailed(f"the harness made a report that cannot be read: {error}") from None


def _is_fault_of_the_container(report: Any, name: str) -> bool:
    entry = report.get(name) if isinstance(report, dict) else None
    return isinstance(entry, dict) and entry.get("infra_failure") is True
