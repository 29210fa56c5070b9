"""An MCP server to try mcp_tools with: notes that are kept for as long as it runs.

python -m gymq.workers.resources.mcp_tools.example_server             on its standard streams
python -m gymq.workers.resources.mcp_tools.example_server --port 8000   streamable HTTP at /mcp
"""

from __future__ import annotations

import argparse

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError


def notes_server() -> MCPServer:
    """Return a server with notes of its own."""
    notes: dict[str, str] = {}
    server = MCPServer("notes", log_level="WARNING")

    @server.tool()
    def write_note(name: str, text: str) -> str:
        """Write a note, in place of the one of that name if there is one."""
        notes[name] = text
        return "written"

    @server.tool()
    def read_note(name: str) -> str:
        """The text of a note."""
        if name not in notes:
            raise ToolError(f"no note has the name {name!r}")
        return notes[name]

    return server


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int)
    port = parser.parse_args().port
    if port is None:
        notes_server().run("stdio")
    else:
        notes_server().run("streamable-http", port=port)
