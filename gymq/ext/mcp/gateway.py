"""The tools of a rollout's session, for programs that speak MCP.

An agent that runs such a program opens a gateway in its own process, in addition to the one for model calls:

    async with ToolGateway() as gateway, gateway.offer(rollout, session) as offer:
        settings = {"type": "http", "url": offer.url, "headers": offer.headers}

The program's calls are calls of the session: they are numbered, have its deadline and are in the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from gymq.agent import Rollout, Session
from gymq.ext.mcp.servers import require_library
from gymq.processes.background import RunningTasks
from gymq.redaction import hidden
from gymq.responses import FunctionCall, FunctionCallOutput, function_call

if TYPE_CHECKING:
    import uvicorn
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import Receive, Scope, Send


@dataclass
class Offer:
    """The address of one session's tools, and the calls made there.

    Attributes:
        items: every call and its output, in order, as items that `Rollout.record` takes.
    """

    url: str
    api_key: str = field(repr=False)
    items: list[FunctionCall | FunctionCallOutput] = field(default_factory=list, repr=False)
    failure: Exception | None = field(default=None, repr=False)
    on_failure: Callable[[Exception], None] | None = field(default=None, repr=False)
    in_flight: RunningTasks = field(default_factory=RunningTasks, repr=False)
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8), repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the program has to send."""
        return {"Authorization": f"Bearer {self.api_key}"}

    @property
    def settings(self) -> bytes:
        """The content of a configuration file such as `.mcp.json`: JSON text with the servers under `mcpServers`."""
        server = {"type": "http", "url": self.url, "headers": self.headers}
        return json.dumps({"mcpServers": {"gymq": server}}).encode()


class ToolGateway:
    """An MCP server (streamable HTTP) on the loopback address, used with `async with`."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        """Prepare a gateway, which will listen on a free port."""
        self._host = host
        self._port = 0
        self._offered: dict[str, tuple[Offer, StreamableHTTPSessionManager]] = {}
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start to listen.

        Raises:
            OptionsError: the library for MCP is not installed.
            OSError: the address cannot be listened on.
        """
        require_library()
        import uvicorn

        class QuietServer(uvicorn.Server):
            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield  # they belong to the process, not to a server in it

        listening = socket.create_server((self._host, 0))
        self._port = listening.getsockname()[1]
        config = uvicorn.Config(
            self._serve,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            proxy_headers=False,
        )
        self._server = QuietServer(config)
        self._serving = asyncio.create_task(self._server.serve([listening]))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._serving is not None
        self._server.should_exit = self._server.force_exit = True
        await self._serving

    @asynccontextmanager
    async def offer(
        self, rollout: Rollout, session: Session, on_failure: Callable[[Exception], None] | None = None
    ) -> AsyncIterator[Offer]:
        """Let a program call the tools that the row offers, while the block runs.

        Args:
            on_failure: called at once with the exception of a failed call, for example `Capture.fail`, which ends the
                program.

        Raises:
            Exception: at the end of the block, the failure of a call: a rollout without its session has no result.
        """
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        place, key = secrets.token_hex(8), secrets.token_urlsafe(24)
        offer = Offer(f"http://{self._host}:{self._port}/{place}/mcp", key, on_failure=on_failure)
        server = _server_of(rollout.params.get("tools") or [], session, offer)
        allowed = TransportSecuritySettings(allowed_hosts=[f"{self._host}:{self._port}"])
        manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True, security_settings=allowed)
        ready, over = asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(_run(manager, ready, over))
        with hidden(key):
            try:
                await ready.wait()
                self._offered[place] = (offer, manager)
                yield offer
            finally:
                self._offered.pop(place, None)
                for task in offer.in_flight:
                    task.cancel()
                over.set()
                await running
        if offer.failure is not None:
            raise offer.failure

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        place, _, rest = scope["path"].lstrip("/").partition("/")
        offer, manager = self._offered.get(place, (None, None))
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        # A caller without the key cannot find out which sessions exist.
        expected = f"Bearer {offer.api_key if offer else secrets.token_hex()}"
        if not hmac.compare_digest(given, expected.encode()):
            await _refuse(send, 401, "this needs the headers of the offer")
        elif offer is None or manager is None or rest != "mcp":
            await _refuse(send, 404, "the address of the tools ends in /mcp")
        elif scope["method"] == "POST":
            async with offer.room:
                if place in self._offered:
                    await manager.handle_request(scope, receive, send)
                else:
                    await _refuse(send, 404, "the rollout is over")
        else:
            await manager.handle_request(scope, receive, send)


async def _run(manager: StreamableHTTPSessionManager, ready: asyncio.Event, over: asyncio.Event) -> None:
    """Run the manager in a separate task, since its task group would wrap exceptions of an agent's code."""
    async with manager.run():
        ready.set()
        await over.wait()


async def _refuse(send: Send, status: int, text: str) -> None:
    body = json.dumps({"error": text}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _server_of(tools: list[dict[str, Any]], session: Session, offer: Offer) -> Server[Any]:
    """Return an MCP server with the functions among `tools`, which calls a session one call at a time."""
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

    functions = {tool["name"]: tool for tool in tools if tool.get("type") == "function"}
    turn = asyncio.Lock()  # calls must have the same order in a replay

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(
                    name=name,
                    description=tool.get("description"),
                    input_schema={"type": "object", **(tool.get("parameters") or {})},
                )
                for name, tool in functions.items()
            ]
        )

    async def call_in_turn(name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        async with turn:
            return await _call(session, offer, name, arguments)

    async def call_tool(_context: Any, params: CallToolRequestParams) -> CallToolResult:
        text, failed = f"there is no tool named {params.name!r}", True
        if params.name in functions:
            # The call continues if the program hangs up: a cancelled call would leave an unknown state.
            call = offer.in_flight.start(call_in_turn(params.name, params.arguments or {}))
            text, failed = await asyncio.shield(call)
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)

    return Server("gymq", on_list_tools=list_tools, on_call_tool=call_tool)


async def _call(session: Session, offer: Offer, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    """Return the text that the program reads, and whether the session failed to answer."""
    if offer.failure is not None:
        return f"the session is lost: {offer.failure}", True
    call = function_call(name, arguments, f"mcp_{len(offer.items) // 2}")
    try:
        output = await session.call(call)
    except Exception as error:  # not an error of the tool: of the connection, or of the journal, too
        offer.failure = error
        if offer.on_failure is not None:
            offer.on_failure(error)
        return f"{name} has no answer: {error}", True
    offer.items += [call, output]
    return str(output["output"]), False
