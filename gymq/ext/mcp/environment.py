"""Environments with the tools of MCP servers; each session has its own connections."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import pydantic

from gymq.authoring import OptionsError, WorkerOptions
from gymq.ext.mcp.servers import McpConnection, ServerOptions, require_library
from gymq.failures import InvalidTask, ToolError, no_such_tool
from gymq.processes.failing import OnFailureAwait
from gymq.resources import Resources, Row

RowT = TypeVar("RowT", bound=Row)


class McpOptions(WorkerOptions):
    servers: dict[str, ServerOptions] = pydantic.Field(min_length=1)  # names of tools must not repeat
    open_timeout_s: pydantic.PositiveFloat = 60.0  # until a server is ready
    call_timeout_s: pydantic.PositiveFloat = 60.0  # for one call; then it is cancelled, and the model gets an error


class McpTools:
    """The state of a session: its connections, and the tools behind them."""

    def __init__(self, connections: list[McpConnection], offered: frozenset[str], call_timeout_s: float) -> None:
        self._connections = connections
        self._at = {tool: connection for connection in connections for tool in connection.tools}
        self._call_timeout_s = call_timeout_s
        self.offered = offered  # to the model, by the row

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call any tool of the servers; a verifier may also use tools that the model does not see.

        Raises:
            ToolError: the tool returned an error, or does not exist.
            TimeoutError: it did not answer in time.
            RolloutError: SESSION_LOST; the server ended.
        """
        connection = self._at.get(tool)
        if connection is None:
            raise no_such_tool(tool)
        return await connection.call(tool, arguments, self._call_timeout_s)

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections))


class McpResources(Resources[RowT, McpTools]):
    """An environment with the tools of MCP servers. Subclass it, and write `verify`.

    A server that is a command is started for each session and stopped when the session ends.
    """

    deterministic = False
    needs = frozenset({"sandbox"})
    max_sessions = 256  # each may have processes

    Options = McpOptions

    async def start(self) -> None:
        require_library()
        for name, server in self.options.servers.items():
            if problem := server.problem():
                raise OptionsError(f"{self.name}: servers.{name}: {problem}")

    async def open(self, row: RowT) -> McpTools:
        options = self.options
        connections = [McpConnection(name, server) for name, server in options.servers.items()]
        async with OnFailureAwait(lambda: asyncio.gather(*(connection.close() for connection in connections))):
            try:
                async with asyncio.TaskGroup() as group:
                    for connection in connections:
                        group.create_task(connection.open(options.open_timeout_s))
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None
            _check_names(connections)
            return McpTools(connections, _offered(row, connections), options.call_timeout_s)

    async def close(self, state: McpTools) -> None:
        await state.close()

    async def call_tool(self, state: McpTools, name: str, arguments: Any) -> str:
        if name not in state.offered:
            raise no_such_tool(name)
        if arguments is not None and not isinstance(arguments, dict):
            raise ToolError(422, "the arguments must be an object")
        try:
            return await state.call(name, arguments or {})
        except TimeoutError as error:
            raise ToolError(500, str(error)) from None


def _check_names(connections: list[McpConnection]) -> None:
    at: dict[str, str] = {}
    for connection in connections:
        for tool in connection.tools:
            if tool in at:
                raise InvalidTask(f"the MCP servers {at[tool]} and {connection.name} both have a tool named {tool}")
            at[tool] = connection.name


def _offered(row: Row, connections: list[McpConnection]) -> frozenset[str]:
    """Return the tools that a row offers to the model."""
    there = {tool for connection in connections for tool in connection.tools}
    tools = row.responses_create_params.get("tools") or ()
    offered = frozenset(tool["name"] for tool in tools if tool.get("type") == "function")
    if missing := offered - there:
        message = f"the row offers {', '.join(sorted(missing))}, but the MCP servers have {', '.join(sorted(there))}"
        raise InvalidTask(message)
    return offered
