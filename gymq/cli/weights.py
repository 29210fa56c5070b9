"""Define the command `gymq weights`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from gymq.cli.shared.parameters import ClusterUrl
from gymq.defaults import CONFIRM_S, InFlight, WeightsMode
from gymq.errors import UsageError

weights = App(
    name="weights",
    help="Push new weights to all replicas of a model, or announce those that its engines have.",
    default_parameter=Parameter(negative=()),
)


@weights.command
def push(
    *,
    model: str,
    policy_version: str,
    path: Path | None = None,
    file: Path | None = None,
    mode: WeightsMode = "keep",
    in_flight: InFlight = "continue",
    deadline: Annotated[float, Parameter(validator=Number(gt=0))] = CONFIRM_S,
    nats: ClusterUrl = None,
) -> int:
    """Push new weights to all replicas of a model, and wait until each has loaded them.

    Replicas that start later load them before they serve. The exit status is 1 if some replicas did not load them, or
    none is running.

    Args:
        model: name of the instance in the configuration.
        policy_version: name of the weights, recorded in every rollout that they answer.
        path: folder or file that every replica can read under this path.
        file: a safetensors file; its bytes are sent to the replicas over NATS.
        mode: what happens to running requests: keep continues them with the new weights, wait finishes them first,
            abort ends them.
        in_flight: what happens to running rollouts: continue with the new weights, restart, or finish under the old
            ones, for which the update waits until the deadline.
        deadline: seconds within which the replicas must load the weights.
    """
    import asyncio

    from gymq.cli.actions.weights import push_to_cluster

    if (path is None) == (file is None):
        raise UsageError("give either --path, that all replicas can read, or --file, whose bytes are sent")
    absolute = None if path is None else path.absolute()
    return asyncio.run(push_to_cluster(model, policy_version, absolute, file, mode, in_flight, deadline, nats))


@weights.command
def announce(
    policy_version: str,
    *,
    model: str = "policy_model",
    engines: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    in_flight: Literal["continue", "restart"] = "continue",
    deadline: Annotated[float, Parameter(validator=Number(gt=0))] = CONFIRM_S,
    nats: ClusterUrl = None,
) -> int:
    """Announce which weights the engines of a model have, when a trainer has given them new ones itself.

    From then on replies carry this version, also those of workers that start later. The exit status is 1 if some
    workers do not answer with it, or none is running.

    Args:
        policy_version: name of the weights, recorded in every rollout that they answer.
        model: name of the instance in the configuration.
        engines: URLs of the engines that answer from now on, if they are not the same as before.
        in_flight: what happens to running rollouts: continue, or restart.
        deadline: seconds within which the workers must know it.
    """
    import asyncio

    from gymq.cli.actions.weights import announce_to_cluster

    return asyncio.run(announce_to_cluster(model, policy_version, engines or [], in_flight, deadline, nats))
