"""Tavily's API (https://docs.tavily.com) by its own client: keys in turn, limits waited for, calls written down."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from gymq.errors import GymqError
from gymq.failures import ToolError

if TYPE_CHECKING:
    from tavily import AsyncTavilyClient

TRIES = 3  # when the service itself has trouble
PAUSE_S = 0.5
TROUBLE = frozenset({500, 502, 503, 504, 520})


class UsageLimit(GymqError):
    """The service wants to be asked later."""


class ServiceError(ToolError):
    """The service gave no answer; the text is for the model and does not contain the key."""

    def __init__(self, text: str) -> None:
        super().__init__(500, text)


class Tavily:
    """Asks the service.

    Args:
        api_keys: used in turn.
        base_url: None for Tavily's own address.
        tries: how often a call is tried that meets the usage limit.
        pause_s: seconds between these tries.
    """

    def __init__(self, api_keys: list[str], base_url: str | None, tries: int, pause_s: float) -> None:
        self._api_keys = api_keys
        self._base_url = base_url
        self._tries = tries
        self._pause_s = pause_s
        self._clients: list[AsyncTavilyClient] = []
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def start(self) -> None:
        from tavily import AsyncTavilyClient

        self._clients = [AsyncTavilyClient(key, api_base_url=self._base_url) for key in self._api_keys if key]
        self._turns = itertools.cycle(self._clients)

    async def stop(self) -> None:
        for client in self._clients:
            await client.close()

    async def search(self, log: list[dict[str, Any]], query: str, exclude_domains: list[str]) -> dict[str, Any]:
        """Return the service's answer to a search.

        Args:
            log: every try is written down here.

        Raises:
            UsageLimit, ServiceError
        """
        arguments = {"query": query, "max_results": 10, "exclude_domains": exclude_domains, "search_depth": "advanced"}
        return await self._ask(log, "search", arguments)

    async def extract(self, log: list[dict[str, Any]], url: str, query: str | None = None) -> str:
        """Return the text of a page, empty if it has none. `log` and errors as in `search`."""
        given = {"urls": url} if query is None else {"urls": url, "query": query}
        results = (await self._ask(log, "extract", given)).get("results") or [{}]
        return results[0].get("raw_content") or ""

    async def _ask(self, log: list[dict[str, Any]], call: str, arguments: dict[str, Any]) -> dict[str, Any]:
        for attempt in range(1, self._tries + 1):
            begun, status = time.time(), "error"
            try:
                answer = await self.request(call, arguments)
                status = "success"
                return answer
            except UsageLimit:
                status = "usage_limit"
                if attempt == self._tries:
                    raise
            finally:
                ended = time.time()
                log.append({"call": call, "status": status, "start": begun, "end": ended, "duration": ended - begun})
            await self.sleep(self._pause_s)
        raise AssertionError("the last try returns or raises")

    async def request(self, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Make one call with the next key, and retry it if the service has trouble.

        Raises:
            UsageLimit, ServiceError
        """
        import httpx

        if not self._clients:
            raise ServiceError("the search has no API key")
        client = next(self._turns)
        for attempt in range(1, TRIES + 1):
            try:
                return await _sent(client, call, arguments)
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                if status not in TROUBLE or attempt == TRIES:
                    raise ServiceError(f"the search service answered with status {status}") from None
            await self.sleep(PAUSE_S)
        raise AssertionError("the last try returns or raises")


async def _sent(client: AsyncTavilyClient, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
    import httpx
    from tavily import errors

    try:
        answer = await getattr(client, call)(**arguments)
    except errors.UsageLimitExceededError:
        raise UsageLimit from None
    except httpx.HTTPStatusError:
        raise
    except httpx.HTTPError as error:
        raise ServiceError(f"the search service could not be reached: {type(error).__name__}") from None
    except Exception as error:  # the client's errors have no common base, and their texts come from the service
        raise ServiceError(f"the search service refused: {type(error).__name__}") from None
    if not isinstance(answer, dict):
        raise ServiceError("the search service's answer is not an object")
    return answer
