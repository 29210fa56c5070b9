"""Define the command `gymq weights`."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from gymq.cli.shared.parameters import ClusterUrl
from gymq.defaults import CONFIRM_S, InFlight, WeightsMode
from gymq.errors import UsageError
from gymq.render import counted, printable

if TYPE_CHECKING:
    from gymq.bus import Bus
    from gymq.bus.weights.pushing import Pushed

weights = App(
    name="weights",
    help="Push new weights to all replicas of a model, or announce those that its engines have.",
    default_parameter=Parameter(negative=()),
)


@weights.command
async def push(
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
    from gymq.bus.weights import pushing

    if (path is None) == (file is None):
        raise UsageError("give either --path, that all replicas can read, or --file, whose bytes are sent")
    async with await _connected(nats) as bus:
        pushed = await pushing.push(
            bus,
            model,
            policy_version,
            path=None if path is None else Path.cwd() / path,
            weights=file,
            mode=mode,
            in_flight=in_flight,
            deadline_s=deadline,
        )
    return report(model, pushed)


@weights.command
async def announce(
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
    from gymq.bus.weights import pushing

    async with await _connected(nats) as bus:
        announced = await pushing.announce(
            bus, model, policy_version, engines=engines or [], in_flight=in_flight, deadline_s=deadline
        )
    return report(model, announced)


async def _connected(nats: str | None) -> AbstractAsyncContextManager[Bus]:
    from gymq.bus.credentials import OPERATOR, TRAINER, may_take
    from gymq.cli.shared.cluster import connected, running_url

    url = await running_url(nats)
    role = OPERATOR if may_take(url, OPERATOR) and not may_take(url, TRAINER) else TRAINER
    return connected(url, name="gymq weights", role=role)


def report(model: str, pushed: Pushed) -> int:
    """Print what became of a push, and return the exit status."""
    print(f"{counted(len(pushed.confirmed), 'replica')} of {model} answer with {printable(pushed.policy_version)}")
    if not (pushed.confirmed or pushed.missing):
        print("gymq: no replica answers: each that starts loads them before it serves", file=sys.stderr)
    if pushed.taken_back:
        print("gymq: no replica can load them: the previous weights stay the newest", file=sys.stderr)
    for worker, why in sorted(pushed.missing.items()):
        print(f"gymq: {worker} does not: {printable(why)}", file=sys.stderr)
    return 0 if pushed.confirmed and pushed.is_complete else 1
