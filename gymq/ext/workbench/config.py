"""Define the command `gymq config`."""

from __future__ import annotations

from functools import partial

from gymq.cli.shared.parameters import NOWHERE, Overrides, WorkerSources
from gymq.errors import UsageError


def config(
    action: str = "show",
    /,
    *overrides: Overrides,
    sources: WorkerSources = NOWHERE,
    json: bool = False,
) -> int:
    """Show a configuration as workers receive it, or check it.

    `gymq config show` prints it merged and resolved, with secrets as ****, and lists the workers it describes. `gymq
    config check` also finds each worker and checks its options; the exit status is 2 if it finds an error.

    Args:
        action: show or check.
        json: print one JSON object.
    """
    from gymq.cli.shared.configuration import read_config
    from gymq.ext.workbench.configuration import ACTIONS, check_config, show_config

    if action not in ACTIONS:
        # `gymq config key=value` leaves the action out.
        if "=" not in action and not action.startswith("~"):
            raise UsageError(f"unknown action {action!r}: use `gymq config show` or `gymq config check`")
        action, overrides = ACTIONS[0], (action, *overrides)
    read = partial(read_config, sources, overrides)
    if action == "check":
        return check_config(read, as_json=json)
    show_config(read(check=False), as_json=json)
    return 0
