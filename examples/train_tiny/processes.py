"""The processes of one training: each has a part of the tasks of a step, and all have the mean of their gradients."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gymq.processes.parent_death import die_with_parent


def start_others(work: Callable[..., None], count: int, *arguments: Any) -> list[Any]:
    """Start the processes but the first; each calls `work(rank, *arguments)`, and ends with this process."""
    context = multiprocessing.get_context("spawn")
    others = [
        context.Process(target=_work, args=(os.getpid(), work, rank, *arguments), daemon=True)
        for rank in range(1, count)
    ]
    for other in others:
        other.start()
    return others


def _work(parent: int, work: Callable[..., None], rank: int, *arguments: Any) -> None:
    die_with_parent(parent)
    work(rank, *arguments)


def meet(folder: Path, rank: int, count: int) -> None:
    """Wait for the other processes, if there are any; they find each other through a file."""
    if count > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", init_method=f"file://{folder.absolute()}", rank=rank, world_size=count)


def wait_for_all() -> None:
    """Wait until all processes are here."""
    if dist.is_initialized():
        dist.barrier()


def average_gradients(model: torch.nn.Module) -> None:
    """Give all processes the mean of their gradients."""
    if not dist.is_initialized():
        return
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def of_all(value: Any) -> list[Any]:
    """Return the values of all processes, the first one's first."""
    if not dist.is_initialized():
        return [value]
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def mean_of_all(values: Sequence[float]) -> tuple[float, int]:
    """Return the mean of the values of all processes, and how many there are."""
    totals = torch.tensor([sum(values), len(values)], dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(totals)
    return float(totals[0] / totals[1]), int(totals[1])
