"""Waiting in tests: for a condition, never for a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; fail if it does not come."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def until_it_is(ask: Callable[[], Awaitable[T]], right: Callable[[T], object]) -> T:
    """Ask again until the answer is right; fail if it never is."""
    async with asyncio.timeout(30):
        while True:
            answer = await ask()
            if right(answer):
                return answer
            await asyncio.sleep(0.01)
