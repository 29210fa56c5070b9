"""The server of notes in this process, one for each session: to start a program takes longer than all that it does."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from unittest import mock

from gymq.ext.mcp.servers import McpConnection


async def notes_here(_connection: McpConnection, _stack: AsyncExitStack) -> Any:
    from gymq.workers.resources.mcp_tools.example_server import notes_server  # needs the package mcp

    return notes_server()


@asynccontextmanager
async def mocked(_worker: Any) -> AsyncIterator[None]:
    with mock.patch.object(McpConnection, "_transport", notes_here):
        yield
