"""Define the command `gymq list`."""

from __future__ import annotations

from typing import Literal, get_args

from gymq.cli.shared.parameters import SearchFolders
from gymq.defaults import Kind


def list(
    kind: Literal[Kind, "benchmarks"] | None = None,
    /,
    *,
    search_dir: SearchFolders = (),
    json: bool = False,
) -> int:
    """List the workers that a configuration can name, with a description of each, or the benchmarks.

    A worker that cannot be imported is listed with the error; one whose libraries are not installed says when it starts
    how to install them. `gymq list benchmarks` lists the benchmarks in folders `benchmarks`, here or of an installed
    NeMo Gym, with what each needs.

    Args:
        kind: only the workers of this kind; `benchmarks` lists benchmarks instead.
        search_dir: folder that has a folder `benchmarks`, such as a checkout of NeMo Gym; may be given several times.
        json: print one JSON object per line instead of tables.
    """
    import msgspec

    from gymq.execution.loading.registry import worker_names
    from gymq.ext.workbench.listing import print_benchmarks, print_facts
    from gymq.ext.workbench.worker_description import describe_worker
    from gymq.render import listing_console

    console = listing_console()
    if kind == "benchmarks":
        print_benchmarks(search_dir, console, as_json=json)
        return 0
    for one in (kind,) if kind else get_args(Kind):
        facts = [describe_worker(one, name) for name in worker_names(one)]
        if json:
            for each in facts:
                print(msgspec.json.encode(each).decode())
        else:
            print_facts(one, facts, console)
    return 0
