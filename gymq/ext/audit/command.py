"""Define the command `gymq audit`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import ConfigFiles


def audit(
    environment: str,
    /,
    *,
    only: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    config: ConfigFiles = (),
    json: bool = False,
) -> int:
    """Audit an environment: correct replies earn their reward, no others do, and none blocks it.

    The correct replies are those of `data/gold.jsonl` beside the worker. Replies that are empty, refuse, echo the
    prompt, list all options, repeat themselves, are huge or deeply nested must earn nothing; malformed rows must be
    refused; verdicts must be the same when repeated and under load; sessions must share nothing; no reply may block the
    event loop. The exit status is 1 if a problem is found, and 2 if the environment cannot be audited.

    Args:
        environment: name, folder, file or configuration of the worker, or `module:Class`.
        only: run only the checks and replies with these names.
        config: configuration to use instead of its own config.yaml; may be given several times.
        json: print the report as one JSON object.
    """
    import asyncio

    import msgspec

    from gymq.config import load
    from gymq.ext.audit.auditing import audit as audit_environment
    from gymq.ext.audit.printing import print_report
    from gymq.render import listing_console

    settings = load([str(path) for path in config]) if config else None
    report = asyncio.run(audit_environment(environment, only=only, config=settings))
    if json:
        print(msgspec.json.encode({"ok": report.ok, **msgspec.to_builtins(report)}).decode())
    else:
        print_report(report, listing_console())
    return 0 if report.ok else 1


AUDIT = Command("Author", "Check whether replies can fool or block an environment.", "gymq.ext.audit.command:audit")
