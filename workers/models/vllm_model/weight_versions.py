"""Which weights engines answer with, as they say themselves or as it was announced."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
import msgspec

from gymq.protocol.decoding import UNDECODABLE

UNNAMED = "default"
"""The version of weights that nobody has named, as vLLM and SGLang have it."""

LOOK_EVERY_S = 1.0
FOLLOW_EVERY_S = 1.0
SEARCH_EVERY_S = 30.0  # at an engine that has none of the paths
TIMEOUT_S = 5.0

# SGLang's, its earlier name, and vLLM's in its development mode.
_PATHS = ("/model_info", "/get_model_info", "/weight_info")
_FIELD = "weight_version"
_OK = 200
_MAX_BYTES = 1_000_000
_MAX_CHARS = 200

Get = Callable[[str, int], Awaitable[tuple[int, bytes]]]
"""Returns the status and the body of an engine's path, with a limit for its bytes."""


def named(version: Any) -> str:
    """Return a version as an engine says it; empty if it says none."""
    text = str(version) if isinstance(version, str | int) else ""
    return text if text != UNNAMED and len(text) <= _MAX_CHARS and text.isprintable() else ""


def told_by(answer: Mapping[str, Any]) -> str:
    """Return the version that a reply names, as SGLang's do; empty if it names none."""
    for holder in (answer.get("metadata"), answer.get("meta_info")):
        if isinstance(holder, dict) and (version := named(holder.get(_FIELD))):
            return version
    return ""


class Known(NamedTuple):
    """What was known of an engine when it was asked."""

    announced: str
    told: str


@dataclass
class _Engine:
    """What one engine has said of its weights.

    Attributes:
        paths: where it is asked.
        asked_at: when it was asked last, on the event loop's clock.
    """

    told: str = ""
    paths: tuple[str, ...] = _PATHS
    asked_at: float = -math.inf
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)


class EngineVersions:
    """The versions of the engines of one worker.

    Attributes:
        announced: the version that all engines have, as it was announced last; empty without an announcement.
    """

    def __init__(self) -> None:
        self.announced = ""
        self._engines: dict[str, _Engine] = {}  # by name

    @property
    def told(self) -> list[str]:
        """Return the versions that engines have named last."""
        return sorted({engine.told for engine in self._engines.values() if engine.told})

    async def follow(self, engines: Callable[[], Mapping[str, Get]]) -> None:
        """Ask the engines again and again, also while no request does.

        Args:
            engines: returns those that there are, by name, with what reads from each.
        """
        while True:
            await self.look(engines())
            await asyncio.sleep(FOLLOW_EVERY_S * random.uniform(0.8, 1.2))

    async def look(self, engines: Mapping[str, Get]) -> None:
        """Ask these engines, and forget all others."""
        self._engines = {name: engine for name, engine in self._engines.items() if name in engines}
        await asyncio.gather(*(self.before(name, get) for name, get in engines.items()))

    async def before(self, name: str, get: Get | None) -> Known:
        """Return what is known of an engine that is about to be asked.

        Args:
            get: reads from the engine; None: it is not read.
        """
        engine = self._engines.setdefault(name, _Engine())
        every_s = SEARCH_EVERY_S if engine.paths == _PATHS else LOOK_EVERY_S
        await self._look(engine, get, asyncio.get_running_loop().time() - every_s)
        return Known(self.announced, engine.told)

    async def of_answer(self, name: str, get: Get | None, before: Known, answer: Mapping[str, Any]) -> list[str]:
        """Return the versions that may have sampled an answer: one, or the first and the last of several."""
        engine = self._engines.setdefault(name, _Engine())
        if told := told_by(answer):
            engine.told = told
        elif engine.told:
            await self._look(engine, get, asyncio.get_running_loop().time())
        if not engine.told:
            return list(dict.fromkeys((before.announced, self.announced)))
        # It is the version at the end of the answer.
        return [engine.told] if engine.told == before.told or not before.told else [before.told, engine.told]

    async def _look(self, engine: _Engine, get: Get | None, since: float) -> None:
        """Ask an engine for its version, unless it was asked since then."""
        if get is None or engine.asked_at > since:
            return
        async with engine.looking:
            if engine.asked_at > since:
                return
            engine.asked_at = asyncio.get_running_loop().time()
            with contextlib.suppress(aiohttp.ClientError, OSError):  # TimeoutError is an OSError
                for path in engine.paths:
                    found = await _read(get, path)
                    if found is not None:
                        engine.told, engine.paths = found, (path,)
                        return


async def _read(get: Get, path: str) -> str | None:
    """Return the version that a path of an engine names, empty if nobody has named it; None: there is no such path.

    Raises:
        aiohttp.ClientError, OSError: the engine does not answer.
    """
    async with asyncio.timeout(TIMEOUT_S):
        status, body = await get(path, _MAX_BYTES)
    try:
        return named(msgspec.json.decode(body, type=dict[str, Any])[_FIELD]) if status == _OK else None
    except (KeyError, *UNDECODABLE):
        return None


def stretches(parts: list[tuple[list[str], int]]) -> list[list[Any]] | None:
    """Return the versions of the tokens of a reply, as `VERSIONS_FIELD` has them; None if those of some are not known.

    Args:
        parts: the versions and the number of tokens of each part.
    """
    if any(len(versions) != 1 or not versions[0] for versions, _ in parts):
        return None
    made: list[list[Any]] = []
    for (version,), num_tokens in parts:
        if made and made[-1][0] == version:
            made[-1][1] += num_tokens
        elif num_tokens:
            made.append([version, num_tokens])
    return made
