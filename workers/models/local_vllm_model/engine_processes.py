"""Ends vLLM's processes with the worker that owns them.

They live on when the process that started them is killed with SIGKILL, and keep the memory of their GPU. vLLM calls
`end_with_the_worker` in each of them, because it is an entry point of the group `vllm.general_plugins`.
"""

from __future__ import annotations

import multiprocessing
import os

from gymq.workers.models.local_vllm_model.serve_args import OWNED

from gymq.processes import memory, parent_death


def end_with_the_worker() -> None:
    """Have the kernel kill this process when its parent ends, if a worker started it. Linux only."""
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None and OWNED in os.environ:
        parent_death.die_with_parent(parent.pid)
        # The processes of an engine may hand each other descriptors of GPU memory, which a hidden one cannot.
        memory.hide_memory(False)
