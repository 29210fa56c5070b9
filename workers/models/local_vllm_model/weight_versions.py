"""Which weights sampled the tokens of a reply, and whether new ones ended it: vLLM's application does not tell all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from gymq.protocol.tokens import VERSIONS_FIELD

Stretches = list[list[Any]]  # as in `VERSIONS_FIELD`

ABORT = "abort"  # finish reason of a request that new weights have ended


@dataclass
class Noted:
    """What `note` was called with."""

    versions: dict[int, Stretches] = field(default_factory=dict)  # by the index of the choice
    was_ended: bool = False


_noted: ContextVar[Noted | None] = ContextVar("noted", default=None)


def stretches(output: Any) -> Stretches:
    """Return the versions of one of vLLM's final `CompletionOutput`s; none if its engine does not say."""
    found = [[one.version, one.end - one.start] for one in output.weight_versions or ()]
    return [one for one in found if one[1]]


@contextmanager
def noted() -> Iterator[Noted]:
    """Note what `note` is called with, in this task and those that it starts."""
    found = Noted()
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def note(outputs: Iterable[Any]) -> None:
    """Note outputs for the request that is answered."""
    found = _noted.get()
    if found is not None:
        for one in outputs:
            found.was_ended = found.was_ended or one.finish_reason == ABORT
            if one.weight_versions:
                found.versions[one.index] = stretches(one)


def put_on(completion: dict[str, Any], found: dict[int, Stretches]) -> None:
    """Add the versions to the choices of a completion: to the message of a chat."""
    for choice in completion.get("choices") or ():
        if found.get(choice["index"]):
            choice.get("message", choice)[VERSIONS_FIELD] = found[choice["index"]]
