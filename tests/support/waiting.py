"""Wait in tests for a condition, never for a fixed time. The deadlines only end a test that would wait forever."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
DEADLINE_S = 300.0
EVERY_S = 0.01


async def until(condition: Callable[[], object], *, every_s: float = EVERY_S, deadline_s: float = DEADLINE_S) -> None:
    """Wait until a condition is true; one that is costly is not looked at as often."""
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(every_s)


async def until_answer(
    ask: Callable[[], Awaitable[T]], right: Callable[[T], object] = bool, *, deadline_s: float = DEADLINE_S
) -> T:
    """Ask again until the answer is right."""
    async with asyncio.timeout(deadline_s):
        while not right(answer := await ask()):  # noqa: ASYNC110
            await asyncio.sleep(EVERY_S)
    return answer
