"""Define the command `gymq test`."""

# ruff: noqa: PT028 (the function is named like its command and is not a test)

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gymq.cli.shared.parameters import ConfigFiles, Repeated
from gymq.errors import UsageError


def test(
    worker: str,
    /,
    *,
    rows: Path | None = None,
    prompt_field: str | None = None,
    config: ConfigFiles = (),
    option: Repeated = (),
    json: bool = False,
) -> int:
    """Check a worker: its tests, its example rows, and a rollout of each row through a small cluster.

    WORKER is a name (`gymq test mcqa`), a folder with worker.py, or a Python file. The files beside it are used:
    `tests/`, `data/example.jsonl`, `config.yaml`. A file with a verifier needs no configuration: `gymq test my_env.py
    --rows rows.jsonl`. The policy is a simulated model that gives the solutions in the rows. The exit status is 1 if
    anything fails.

    Args:
        worker: name, folder or file of the worker.
        rows: file with rows to check it with, as `gymq collect` reads it, instead of its own data/example.jsonl.
        prompt_field: field of the rows with the prompt, as for `gymq collect`.
        config: configuration to use instead of its own config.yaml; may be given several times.
        option: option of a worker that has no configuration, as `KEY=VALUE`; may be given several times.
        json: print the results as one JSON object.
    """
    import asyncio
    import sys

    import msgspec

    from gymq.config import Config, ConfigError
    from gymq.execution.loading.worker_source import find_worker
    from gymq.ext.shared.checks import Check
    from gymq.ext.workbench.checking import check, settings_of
    from gymq.render import print_prose

    if rows is not None and not rows.is_file():
        raise UsageError(f"--rows {rows}: file not found")
    source = replace(find_worker(worker), rows=rows)
    steps: list[Check] = []
    settings: Config | None = None
    try:
        settings = settings_of(source, config, option)
    except ConfigError as error:
        steps.append(Check("configuration", "failed", str(error)))
    steps += asyncio.run(check(source, settings, steps, prompt_field, quiet=json))
    failed = any(step.status == "failed" for step in steps)
    checked = any(step.status == "ok" for step in steps)
    if json:
        report = {"worker": source.name, "kind": source.kind, "ok": checked and not failed, "steps": steps}
        print(msgspec.json.encode(report).decode())
    elif not checked and not failed:
        print_prose(
            "nothing to check: it has neither tests nor example rows; `gymq test "
            f"{worker} --rows rows.jsonl` checks it with rows from elsewhere",
            sys.stdout,
        )
    return 1 if failed or not checked else 0
