"""Waiting in tests: for a condition, never for a time."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; fail if it does not come."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
