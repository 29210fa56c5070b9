"""What a request of the viewer asks for: the names in its path and the parameters of its query, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from aiohttp import web

from gymq.ext.http.errors import invalid, not_found
from gymq.ext.viewer.rollout_list import Wanted
from gymq.protocol import subjects

T = TypeVar("T")
C = TypeVar("C", bound=str)


def run_of(request: web.Request) -> str:
    return run_named(request.match_info["run"])


def run_named(name: str) -> str:
    try:
        return subjects.token(name, "run")
    except subjects.BadToken as error:
        raise not_found(str(error)) from None


def wanted_of(query: Mapping[str, str]) -> Wanted:
    result = query.get("result")
    if result not in (None, "", "rewarded", "failed"):
        raise invalid("result must be rewarded or failed")
    return Wanted(
        agent=query.get("agent") or None,
        task_index=given(query, "task", index),
        failed=result == "failed" if result else None,
        failure_class=query.get("failure") or None,
        least_reward=given(query, "least_reward", float),
        most_reward=given(query, "most_reward", float),
        least_s=given(query, "least_s", float),
        text=query.get("text") or None,
    )


def choice(query: Mapping[str, str], name: str, *choices: C) -> C:
    """Return one of the choices; the first if none is given."""
    given = query.get(name) or choices[0]
    found = next((choice for choice in choices if choice == given), None)
    if found is None:
        raise invalid(f"{name} must be one of {', '.join(choices)}")
    return found


def rollout_of(request: web.Request) -> subjects.RolloutId:
    indices = (index(request.match_info[name]) for name in ("task", "rollout"))
    return subjects.RolloutId(run_of(request), *indices)


def given(query: Mapping[str, str], name: str, read: Callable[[str], T]) -> T | None:
    """Return a parameter of a query, or None if it is not given."""
    text = query.get(name)
    if not text:
        return None
    try:
        return read(text)
    except ValueError:
        raise invalid(f"{name}: {text:.40} is not a number") from None


def index(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 17 else -1
    if not 0 <= number <= 2**53:
        raise not_found(f"{text:.40} is not an index")
    return number
