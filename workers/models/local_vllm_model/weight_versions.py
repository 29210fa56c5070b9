"""Which weights sampled the tokens of a reply: vLLM knows it, and its application leaves it out of its answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from gymq.protocol.tokens import VERSIONS_FIELD

Stretches = list[list[Any]]  # as in `VERSIONS_FIELD`

_noted: ContextVar[dict[int, Stretches] | None] = ContextVar("noted", default=None)


def stretches(output: Any) -> Stretches:
    """Return the versions of one of vLLM's final `CompletionOutput`s; none if its engine does not say."""
    found = [[one.version, one.end - one.start] for one in output.weight_versions or ()]
    return [one for one in found if one[1]]


@contextmanager
def noted() -> Iterator[dict[int, Stretches]]:
    """Note what `note` is called with, in this task and those that it starts, by the index of the choice."""
    found: dict[int, Stretches] = {}
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def note(outputs: Iterable[Any]) -> None:
    """Note the versions of outputs for the request that is answered."""
    found = _noted.get()
    if found is not None:
        found.update((one.index, stretches(one)) for one in outputs if one.weight_versions)


def put_on(completion: dict[str, Any], found: dict[int, Stretches]) -> None:
    """Add the versions to the choices of a completion: to the message of a chat."""
    for choice in completion.get("choices") or ():
        if found.get(choice["index"]):
            choice.get("message", choice)[VERSIONS_FIELD] = found[choice["index"]]
