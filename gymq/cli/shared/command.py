"""One command. Packages beside the core add theirs by entry points `gymq.commands`."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command, as `gymq --help` lists it."""

    group: str
    line: str
    path: str  # of the function or app, as `module:name`
