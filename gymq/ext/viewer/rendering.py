"""Texts rendered in processes that can be killed: what a model wrote may make any renderer slow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from gymq.ext.viewer.highlighting import highlighted
from gymq.ext.viewer.rich_text import markdown
from gymq.ext.viewer.tree import Node
from gymq.processes import ComputeLimits, KillableProcesses

log = logging.getLogger("gymq.ext.viewer")

MAX_CHARS = 20_000  # of a text that is rendered; the page shows what is behind it as it is
MOST_TEXTS = 64  # of one request
MAX_BYTES = 4 * 1024 * 1024  # of one request


class RichText(msgspec.Struct, forbid_unknown_fields=True):
    """A text to render."""

    text: str
    language: str = ""  # of code; empty: it is Markdown


def _prepare() -> None:
    """Import what rendering needs before its time is measured."""
    markdown("`a` $a$\n```python\na = 1\n```")


_LIMITS = ComputeLimits(cpu_s=1.0, timeout_s=10.0, max_memory_bytes=2**30, prepare=_prepare, max_workers=1)


class Rendering:
    """Renders texts."""

    def __init__(self) -> None:
        self._processes = KillableProcesses(max_workers=1)
        self._starting: asyncio.Task[list[list[Node] | None]] | None = None

    def start(self) -> None:
        """Have the process started in the background, so that the first text need not wait for it."""
        if self._starting is None:
            self._starting = asyncio.create_task(self.render([RichText("a")]))

    async def render(self, sources: Sequence[RichText]) -> list[list[Node] | None]:
        """Return the nodes of each text; None for one that takes too long or is too long."""
        fitting = [source for source in sources if len(source.text) <= MAX_CHARS]
        made = iter(await self._together(fitting))
        return [next(made) if len(source.text) <= MAX_CHARS else None for source in sources]

    async def _together(self, sources: Sequence[RichText]) -> list[list[Node] | None]:
        """Render texts at once; one by one if that fails, so that a hostile one is the only one without a result."""
        if not sources:
            return []
        try:
            return list(await self._processes.compute(_LIMITS, _rendered, sources))
        except Exception as error:  # of limits, or a mistake of a library that no text was meant to find
            if len(sources) > 1:
                return [(await self._together([source]))[0] for source in sources]
            log.info("%d characters cannot be rendered: %s: %s", len(sources[0].text), type(error).__name__, error)
            return [None]

    def close(self) -> None:
        """End the process."""
        if self._starting is not None:
            self._starting.cancel()
        self._processes.close()


def _rendered(sources: Sequence[RichText]) -> list[list[Node]]:
    return [highlighted(one.text, one.language) if one.language else markdown(one.text) for one in sources]
