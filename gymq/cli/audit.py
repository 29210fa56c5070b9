"""gymq audit"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.console import Console

from gymq.cli.errors import told_plainly
from gymq.cli.listing import listing
from gymq.cli.printable import printable
from gymq.config import load
from gymq.testing import AuditReport
from gymq.testing import audit as audit_environment

_STYLES = {"ok": "green", "failed": "red", "none": "dim"}


def audit(
    environment: str,
    /,
    *,
    only: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    config: Annotated[tuple[Path, ...], Parameter(alias="-c", consume_multiple=False)] = (),
    json: bool = False,
) -> int:
    """Audit an environment: right replies earn their reward, nothing else does, and nothing holds it up.

    The right replies are those of `data/gold.jsonl` beside the worker. Replies that are empty, refuse, echo the prompt,
    list all options, repeat themselves, are huge or deeply nested are to earn nothing; malformed rows are refused;
    verdicts are the same twice and under load; sessions share nothing; no reply holds the event loop. Ends with status
    1 if anything is found, and with status 2 if the environment cannot be audited.

    Args:
        environment: name, folder, file or configuration of the worker, or `module:Class`.
        only: run only the checks and replies of these names.
        config: configuration to use instead of its own config.yaml; may be given several times.
        json: print the report as one JSON object.
    """
    with told_plainly():
        settings = load([str(path) for path in config]) if config else None
        report = asyncio.run(audit_environment(environment, only=only, config=settings))
    if json:
        print(msgspec.json.encode({"ok": report.ok, **msgspec.to_builtins(report)}).decode())
    else:
        _print(report, Console())
    return 0 if report.ok else 1


def _print(report: AuditReport, console: Console) -> None:
    table = listing("", "check", "", "outcome")
    for check in report.checks:
        status = "-" if check.status == "none" else check.status
        lines = "\n".join([check.summary, *(f"  {line}" for line in check.details)])
        table.add_row(check.name, printable(status, style=_STYLES[check.status]), printable(lines))
    console.print(table)
    failed = sum(check.status == "failed" for check in report.checks)
    found = f"{failed} of {len(report.checks)} checks found something" if failed else "nothing was found"
    console.print(printable(f"\n{report.environment}: {found} in {report.verdicts:,} verdicts"), soft_wrap=True)
