"""A Ray cluster on this machine: a head without room for anything, and nodes with."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

# Set before the import of Ray: they keep the cluster on this machine and apart from others.
os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
_MEMORY = 80 << 20


@contextmanager
def local_cluster(num_nodes: int) -> Iterator[Any]:
    """The cluster with its nodes as `workers`. Skips where Ray is not installed."""
    ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "gymq[ray]"')
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        os.environ["RAY_TMPDIR"] = folder
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": _MEMORY}
        made = Cluster(initialize_head=True, head_node_args=head)
        made.workers = [made.add_node(num_cpus=2, object_store_memory=_MEMORY) for _ in range(num_nodes)]
        yield made
        ray.shutdown()
        made.shutdown()
        del os.environ["RAY_TMPDIR"]
