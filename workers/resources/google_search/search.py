"""Google's Programmable Search, by its JSON API: https://developers.google.com/custom-search/v1/reference/rest."""

from __future__ import annotations

import json

import aiohttp

from gymq.errors import GymqError


class SearchFailed(GymqError):
    """The search gave no results; the text is for the model and contains neither key nor address."""


class GoogleSearch:
    """Sends queries. Use `start` and `stop` around it.

    Args:
        url: address of the service, or of another one with the same interface.
        cx: id of the search engine.
        timeout_s: seconds for one query.
    """

    def __init__(self, url: str, api_key: str, cx: str, timeout_s: float) -> None:
        self._url = url
        self._api_key = api_key
        self._cx = cx
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        self._session = aiohttp.ClientSession(timeout=self._timeout)

    async def stop(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def search(self, query: str) -> str:
        """Return the service's answer, as JSON text.

        Raises:
            SearchFailed
        """
        if not self._api_key:
            raise SearchFailed("the search has no API key")
        status, reason, body = await self.request(query)
        if status >= 400:
            raise SearchFailed(f"the search service answered with status {status} {reason}".strip())
        try:
            return json.dumps(json.loads(body))
        except (ValueError, RecursionError):
            raise SearchFailed("the search service's answer is not JSON") from None

    async def request(self, query: str) -> tuple[int, str, bytes]:
        """Status, reason and body of the service's answer.

        Raises:
            SearchFailed: there is none. Other errors hold the address, and with it the key.
        """
        assert self._session is not None, "start() comes first"
        params = {"key": self._api_key, "cx": self._cx, "q": query}
        try:
            # A redirect would carry the key to wherever it leads.
            async with self._session.get(self._url, params=params, allow_redirects=False) as response:
                return response.status, response.reason or "", await response.read()
        except TimeoutError:
            raise SearchFailed("the search service did not answer in time") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise SearchFailed(f"the search service could not be reached: {type(error).__name__}") from None
