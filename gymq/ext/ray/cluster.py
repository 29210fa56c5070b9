"""Joining a Ray cluster. Ray is imported here, and only when a cluster is joined."""

from __future__ import annotations

import importlib
from typing import Any

from gymq.errors import UsageError


def join(address: str) -> Any:
    """Return the module `ray`, connected to a cluster; blocks.

    A connection that this process already has is kept.

    Args:
        address: address of the cluster, as `ray.init` takes it.

    Raises:
        UsageError: Ray is not installed, or no cluster is at this address.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise UsageError('Ray is not installed: pip install "gymq[ray]"') from None
    try:
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, configure_logging=False)
    except Exception as error:  # Ray raises many kinds
        raise UsageError(f"cannot reach a Ray cluster at {address!r}: {error}") from None
    return ray
