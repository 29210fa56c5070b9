"""Joining a Ray cluster. Ray is imported here, and only when somebody joins one."""

from __future__ import annotations

import importlib
from typing import Any


class NoCluster(Exception):
    """Ray is not installed, or there is no cluster; one sentence."""


def join(address: str) -> Any:
    """The module `ray`, connected; a connection that this process has already is kept. It blocks.

    Args:
        address: of the cluster, as `ray.init` takes it.

    Raises:
        NoCluster
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise NoCluster('Ray is not installed: pip install "gymq[ray]"') from None
    try:
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, configure_logging=False)
    except Exception as error:  # Ray raises many kinds
        raise NoCluster(f"there is no Ray cluster at {address!r}: {error}") from None
    return ray
