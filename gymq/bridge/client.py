"""Many rows at once over HTTP, each result as soon as it is there: the calling side of a bridge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any

import aiohttp
import msgspec

from gymq.data.failure_status import RowFailed

Row = dict[str, Any]

CONNECT_S = 30.0


def run_examples(
    base_url: str, rows: Sequence[Row], *, limit: asyncio.Semaphore | None = None, api_key: str | None = None
) -> Iterator[Awaitable[tuple[Row, Row]]]:
    """Post every row, and iterate over awaitables of `(row, result)` in the order in which results arrive.

    Rows are the caller's own objects, each exactly once. Failed rows come last, as awaitables that raise `RowFailed`: a
    caller that stops at the first exception has all results by then, and no row is cancelled because another failed.

    Must be called in a running event loop.

    Args:
        base_url: URL of a bridge.
        limit: limit on the rows in flight; None: all of them.
    """
    batch = _Batch(base_url, rows, limit, api_key)
    # Made as they are asked for: a caller that stops early leaves none that is never awaited.
    return (batch.next() for _ in range(len(rows)))


class _Batch:
    """The rows of one call."""

    def __init__(
        self, base_url: str, rows: Sequence[Row], limit: asyncio.Semaphore | None, api_key: str | None
    ) -> None:
        self._url = f"{base_url}/run"
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._limit = limit
        self._arrived: asyncio.Queue[tuple[Row, Row] | RowFailed] = asyncio.Queue()
        self._failed: list[RowFailed] = []
        self._working = asyncio.get_running_loop().create_task(self._work(rows))

    async def next(self) -> tuple[Row, Row]:
        outcome = await self._arrived.get()
        if isinstance(outcome, RowFailed):
            raise outcome
        return outcome

    async def _work(self, rows: Sequence[Row]) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=jar) as session:
            await asyncio.gather(*(self._one(session, row) for row in rows))
        for failed in self._failed:
            self._arrived.put_nowait(failed)

    async def _one(self, session: aiohttp.ClientSession, row: Row) -> None:
        try:
            if self._limit is None:
                result = await self._post(session, row)
            else:
                async with self._limit:
                    result = await self._post(session, row)
            self._arrived.put_nowait((row, result))
        except RowFailed as failed:
            self._failed.append(failed)

    async def _post(self, session: aiohttp.ClientSession, row: Row) -> Row:
        try:
            body = msgspec.json.encode(row)
            async with session.post(self._url, data=body, headers=self._headers) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise RowFailed(0, f"{type(error).__name__}: {error}".encode()) from None
        except (TypeError, ValueError, RecursionError) as error:
            raise RowFailed(422, f"the row has no JSON form: {error}".encode()) from None
        if answer.status != 200:
            raise RowFailed(answer.status, content)
        try:
            result: Row = msgspec.json.decode(content, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise RowFailed(0, f"the answer is not a result: {error}".encode()) from None
        return result
