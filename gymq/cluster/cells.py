"""Cells: processes that each have all agents, and the workers that these call, so that their calls need no server."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

import pydantic

from gymq.bus import credentials
from gymq.execution.loading.registry import class_of
from gymq.model import Model
from gymq.protocol.instances import Instance
from gymq.resources import Resources

log = logging.getLogger("gymq.launch")

ROLE = "cell"


def cells(instances: Iterable[Instance]) -> list[list[Instance]]:
    """Return the workers of each cell: one for each core, and all the same. There is none without agents.

    Roles keep processes of different kinds apart, so with roles there is none either.
    """
    shared = [instance for instance in instances if shares_process(instance)]
    if not any(instance.kind == "agents" for instance in shared):
        return []
    if credentials.folder() is not None:
        log.warning("layout: cells has no effect with %s: each kind has a user of its own", credentials.VARIABLE)
        return []
    return [shared] * (os.cpu_count() or 1)


def shares_process(instance: Instance) -> bool:
    """Return whether a worker may be in a process with others, and in several of these."""
    options = instance.options
    if (options.get("num_workers") or 1) > 1 or options.get("isolated") or options.get("pass_env"):
        return False
    found = class_of(instance)
    if found is None:
        return False  # the process that it gets says why
    try:
        found.Options(**options | {"num_workers": 2})
    except pydantic.ValidationError:
        return False  # what rollouts share is in its one process, or the process that it gets says what is wrong
    if issubclass(found, Model):
        return found.is_client
    return not issubclass(found, Resources) or "sandbox" not in found.needs
