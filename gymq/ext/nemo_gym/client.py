"""Many rows at once over HTTP, each result as soon as it is there: the calling side of a bridge."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, Self

import aiohttp
import msgspec

from gymq.ext.shared.row_failed import RowFailed
from gymq.protocol.decoding import UNDECODABLE

Row = dict[str, Any]


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


class RowClient:
    """Posts rows to `/run` of a server, used with `async with`."""

    def __init__(self, base_url: str, api_key: str | None = None) -> None:
        """Prepare the client.

        Args:
            base_url: URL of a bridge, or of an agent.
        """
        self._url = f"{base_url}/run"
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30.0)
        jar = aiohttp.DummyCookieJar()
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=jar)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def run(self, row: Row) -> Row:
        """Return the result of a row.

        Raises:
            RowFailed: it has none.
        """
        try:
            body = msgspec.json.encode(row)
            async with self._session.post(self._url, data=body, headers=self._headers) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise RowFailed(0, f"{type(error).__name__}: {error}".encode()) from None
        except (TypeError, ValueError, RecursionError) as error:
            raise RowFailed(422, f"the row has no JSON form: {error}".encode()) from None
        if answer.status != 200:
            raise RowFailed(answer.status, content)
        try:
            result: Row = msgspec.json.decode(content, type=dict[str, Any])
        except UNDECODABLE as error:
            raise RowFailed(0, f"the answer is not a result: {error}".encode()) from None
        return result


class _Batch:
    """The rows of one call."""

    def __init__(
        self, base_url: str, rows: Sequence[Row], limit: asyncio.Semaphore | None, api_key: str | None
    ) -> None:
        self._client = RowClient(base_url, api_key)
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
        async with self._client:
            await asyncio.gather(*(self._one(row) for row in rows))
        for failed in self._failed:
            self._arrived.put_nowait(failed)

    async def _one(self, row: Row) -> None:
        try:
            async with self._limit or contextlib.nullcontext():
                result = await self._client.run(row)
            self._arrived.put_nowait((row, result))
        except RowFailed as failed:
            self._failed.append(failed)
