"""Define the command `gymq list`."""

from __future__ import annotations

from typing import get_args

from gymq.defaults import Kind


def list(
    kind: Kind | None = None,
    /,
    *,
    json: bool = False,
) -> int:
    """List the workers that a configuration can name, with a description of each.

    A worker whose libraries are not installed is listed with the command that installs them.

    Args:
        kind: only the workers of this kind.
        json: print one JSON object per line instead of tables.
    """
    import msgspec

    from gymq.cli.actions.list import print_facts
    from gymq.loading.worker_facts import facts_of, names
    from gymq.render import listing_console

    console = listing_console()
    for one in (kind,) if kind else get_args(Kind):
        facts = [facts_of(one, name) for name in names(one)]
        if json:
            for each in facts:
                print(msgspec.json.encode(each).decode())
        else:
            print_facts(one, facts, console)
    return 0
