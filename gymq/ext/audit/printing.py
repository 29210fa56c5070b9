"""The work of `gymq audit`."""

from __future__ import annotations

from rich.console import Console

from gymq.ext.audit.report import AuditReport
from gymq.ext.shared.rendering import STATUS_STYLES
from gymq.render import listing, printable


def print_report(report: AuditReport, console: Console) -> None:
    table = listing("", "check", "", "outcome")
    for check in report.checks:
        status = "-" if check.status == "none" else check.status
        lines = "\n".join([check.summary, *(f"  {line}" for line in check.details)])
        table.add_row(check.name, printable(status, style=STATUS_STYLES[check.status]), printable(lines))
    console.print(table)
    failed = sum(check.status == "failed" for check in report.checks)
    found = f"{failed} of {len(report.checks)} checks found something" if failed else "nothing was found"
    console.print(printable(f"\n{report.environment}: {found} in {report.verdicts:,} verdicts"), soft_wrap=True)
