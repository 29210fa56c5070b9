"""gymq weights"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from gymq.auth import OPERATOR, TRAINER
from gymq.bus import Bus
from gymq.cli.cluster import running_url
from gymq.cli.errors import Refused, told_plainly
from gymq.cli.printable import printable
from gymq.credentials import may_take
from gymq.model import WeightsMode
from gymq.weights import CONFIRM_S, Pushed, PushError
from gymq.weights import push as push_weights

weights = App(
    name="weights",
    help="Give all replicas of a model new weights.",
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
    deadline: Annotated[float, Parameter(validator=Number(gt=0))] = CONFIRM_S,
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
) -> int:
    """Give all replicas of a model new weights, and wait until each has loaded them.

    Replicas that start later load them before they serve. Exit status 1: some replicas did not load them.

    Args:
        model: name of the instance in the configuration.
        policy_version: what the weights are called from now on, in every rollout they answer.
        path: folder or file that every replica finds under this path.
        file: a safetensors file; its bytes are sent to the replicas over NATS.
        mode: what becomes of requests that run: they are kept, waited for, or aborted.
        deadline: seconds for the replicas to load them.
        nats: URL of the cluster; by default the one that runs in this folder.
    """
    with told_plainly():
        if (path is None) == (file is None):
            raise Refused("give either --path, that all replicas can read, or --file, whose bytes are sent")
        try:
            absolute = None if path is None else path.absolute()
            return asyncio.run(_push(model, policy_version, absolute, file, mode, deadline, nats))
        except PushError as error:
            raise Refused(str(error)) from None


async def _push(
    model: str,
    policy_version: str,
    path: Path | None,
    file: Path | None,
    mode: WeightsMode,
    deadline_s: float,
    nats: str | None,
) -> int:
    url = await running_url(nats)
    role = OPERATOR if may_take(url, OPERATOR) and not may_take(url, TRAINER) else TRAINER
    bus = await Bus.connect(url, role=role, name="gymq weights")
    try:
        pushed = await push_weights(
            bus,
            model,
            policy_version,
            path=path,
            weights=file,
            mode=mode,
            deadline_s=deadline_s,
        )
    finally:
        await bus.close()
    return _report(model, pushed)


def _report(model: str, pushed: Pushed) -> int:
    count = len(pushed.confirmed)
    print(f"{count} replica{'' if count == 1 else 's'} of {model} answer with {printable(pushed.policy_version)}")
    if pushed.taken_back:
        print("gymq: no replica can load them: those before stay the newest", file=sys.stderr)
    for worker, why in sorted(pushed.missing.items()):
        print(f"gymq: {worker} does not: {printable(why)}", file=sys.stderr)
    return 1 if pushed.missing else 0
