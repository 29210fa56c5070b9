"""Where Ray puts the engines. Imports Ray."""

from __future__ import annotations

from typing import Any

import ray
from gymq.workers.models.local_vllm_model.options import LocalVLLMOptions, RayOptions
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from gymq.errors import GymqError

_STRATEGIES = {"strict": "STRICT_PACK", "pack": "PACK", "spread": "SPREAD"}


class NoPlace(GymqError, RuntimeError):
    """The cluster has no room for an engine; one sentence."""


def join(options: RayOptions) -> bool:
    """Join a Ray cluster, or start one; return whether this process did so and has to leave it."""
    if ray.is_initialized():
        return False
    settings = {"include_dashboard": False, "log_to_driver": False, **options.init}
    if options.address == "auto":
        try:
            ray.init(address="auto", log_to_driver=False)
        except ConnectionError:
            ray.init(address="local", **settings)
    else:
        ray.init(address=options.address, **(settings if options.address == "local" else options.init))
    return True


def bundles(options: LocalVLLMOptions) -> list[dict[str, float]]:
    """Return what one rank needs: a place for its front end, then one for each GPU."""
    assert options.ray is not None
    num_gpus = options.ray.gpus_per_rank
    if num_gpus is None:
        num_gpus = options.size("tensor_parallel_size") * options.size("pipeline_parallel_size")
    front: dict[str, float] = {"CPU": options.ray.cpus_per_rank, **options.ray.resources}
    return [front, *({"GPU": 1.0} for _ in range(num_gpus))]


def reserve(options: LocalVLLMOptions) -> PlacementGroup:
    """Room for one rank.

    Raises:
        NoPlace: it did not become free in time.
    """
    assert options.ray is not None
    wanted = bundles(options)
    group = placement_group(wanted, strategy=_STRATEGIES[options.ray.strategy])
    if not group.wait(options.ray.placement_timeout_s):
        remove_placement_group(group)
        total: dict[str, Any] = ray.cluster_resources()
        has = ", ".join(f"{total[name]:g} {name}" for name in sorted(total) if name in {*wanted[0], "GPU"})
        raise NoPlace(
            f"no room for an engine within {options.ray.placement_timeout_s:g} s: it needs {wanted} "
            f"({options.ray.strategy}), and the Ray cluster has {has or 'none of that'} in all"
        )
    return group
