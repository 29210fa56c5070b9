"""The server of notes in this process, one for each session: to start a program takes longer than all that it does."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from unittest import mock

from gymq.mcp.servers import McpConnection


async def notes_here(_connection: McpConnection, _stack: AsyncExitStack) -> Any:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    notes: dict[str, str] = {}
    server = MCPServer("notes", log_level="ERROR")

    @server.tool()
    def write_note(name: str, text: str) -> str:
        notes[name] = text
        return "written"

    @server.tool()
    def read_note(name: str) -> str:
        if name not in notes:
            raise ToolError(f"there is no note {name!r}")
        return notes[name]

    return server


@asynccontextmanager
async def mocked(_worker: Any) -> AsyncIterator[None]:
    with mock.patch.object(McpConnection, "_transport", notes_here):
        yield
