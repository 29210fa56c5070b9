"""Facts about a worker: what it rewards, the range of its rewards, its tools and its requirements.

`gymq list` prints these facts, and the table in docs/environments.md is compared with them.
"""

from __future__ import annotations

import inspect
import math

import msgspec

from gymq.authoring import Worker
from gymq.execution.loading.registry import WorkerNotFound, find_class
from gymq.protocol.instances import Kind
from gymq.resources import Resources


class WorkerDescription(msgspec.Struct, omit_defaults=True):
    """The facts about one worker. All but the first four are those of resources workers."""

    name: str
    kind: Kind
    summary: str  # the first paragraph of the class's docstring
    problem: str | None = None  # why it cannot be imported
    reward_range: tuple[float, float] | None = None  # None: not declared
    deterministic: bool = True
    state: bool = False
    replayable: bool = False
    tools: list[str] = []
    more_tools: bool = False  # it dispatches tools by name, which it makes up at run time
    needs: list[str] = []


def describe_worker(kind: Kind, name: str) -> WorkerDescription:
    """Return the facts about the worker with that name, module or file.

    A worker that cannot be imported has a `problem`.
    """
    try:
        worker = find_class(kind, name)
    except WorkerNotFound as error:
        return WorkerDescription(name, kind, "", str(error))
    summary = _summary(worker)
    if not issubclass(worker, Resources):
        return WorkerDescription(name, kind, summary)
    declared = all(map(math.isfinite, worker.reward_range))
    return WorkerDescription(
        name,
        kind,
        summary,
        reward_range=worker.reward_range if declared else None,
        deterministic=worker.deterministic,
        state=worker.stateful,
        replayable=worker.replayable,
        tools=sorted(worker.tools),
        more_tools=worker.call_tool is not Resources.call_tool,
        needs=sorted(worker.needs),
    )


def _summary(worker: type[Worker]) -> str:
    return " ".join((inspect.getdoc(worker) or "").split("\n\n")[0].split()).removesuffix(".")
