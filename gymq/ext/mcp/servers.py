"""A connection to an MCP server, which is a process or a URL."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic

from gymq.authoring import OptionsError
from gymq.failures import ComponentFailed, RolloutError, ToolError
from gymq.protocol.messages import FailureClass, Stage
from gymq.redaction import redact

if TYPE_CHECKING:
    import mcp

_LAST_CHARS = 500  # of what a server wrote to standard error
CLOSE_S = 15.0  # wait for the end of a server; its process is killed before that


class ServerOptions(pydantic.BaseModel):
    """An MCP server: a command that speaks on its standard streams, or a URL that speaks streamable HTTP."""

    model_config = pydantic.ConfigDict(extra="forbid")

    command: list[str] | None = pydantic.Field(default=None, min_length=1)  # `python`: the interpreter of the worker
    env: dict[str, pydantic.SecretStr] = {}  # in addition to HOME, PATH and the like
    cwd: Path | None = None  # None: an empty folder for each session, deleted with it
    url: str | None = pydantic.Field(default=None, pattern=r"^https?://")
    headers: dict[str, pydantic.SecretStr] = {}

    @pydantic.model_validator(mode="after")
    def _check(self) -> ServerOptions:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either a command or a url")
        if self.url is None and self.headers:
            raise ValueError("headers belong to a url")
        if self.command is None and (self.env or self.cwd):
            raise ValueError("env and cwd belong to a command")
        return self

    def problem(self) -> str | None:
        """Return why the command cannot run on this machine; None if it can."""
        if self.command and self.command[0] != "python" and shutil.which(self.command[0]) is None:
            return f"there is no program {self.command[0]!r}"
        return None


def require_library() -> None:
    """Check that the library for MCP is installed.

    Raises:
        OptionsError: it is not installed.
    """
    if importlib.util.find_spec("mcp") is None:
        raise OptionsError('mcp is not installed: pip install "gymq[mcp]"')


class McpConnection:
    """A connection to a server. Calls may be made from any task.

    The library binds a connection to the task that opened it, so each connection has a separate task.
    """

    def __init__(self, name: str, options: ServerOptions) -> None:
        self.name = name
        self.tools: dict[str, mcp.Tool] = {}
        self._options = options
        self._client: mcp.Client | None = None
        self._opened = asyncio.Event()
        self._closing = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._stderr: _StandardError | None = None  # of a command

    async def open(self, timeout_s: float) -> None:
        """Connect, and list the tools.

        Raises:
            ComponentFailed: the server ended, or cannot be reached.
        """
        self._life = asyncio.create_task(self._live())
        opened = asyncio.create_task(self._opened.wait())
        try:
            await asyncio.wait([self._life, opened], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if self._opened.is_set():
                return
            reason = self._why_it_ended() if self._life.done() else f"it was not ready within {timeout_s:g} s"
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            opened.cancel()
        await self.close()
        raise ComponentFailed(f"the MCP server {self.name} cannot be used: {reason}")

    async def call(self, tool: str, arguments: dict[str, Any], timeout_s: float) -> str:
        """Call a tool, once, and return the text that a model reads.

        Raises:
            ToolError: the server answered with an error.
            TimeoutError: it did not answer in time.
            RolloutError: SESSION_LOST; it ended, together with its state, and it is unknown whether the tool ran.
        """
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_TIMEOUT

        assert self._client is not None
        assert self._life is not None
        calling = asyncio.create_task(self._client.call_tool(tool, arguments, read_timeout_seconds=timeout_s))
        try:
            await asyncio.wait([calling, self._life], return_when=asyncio.FIRST_COMPLETED)
            if not calling.done():
                raise self._lost_during(tool, self._why_it_ended())
            result = calling.result()
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                reason = f"{error.message}{self._last_words()}"
                raise self._lost_during(tool, reason) from None
            if error.code == REQUEST_TIMEOUT:
                raise TimeoutError(f"{tool} did not finish within {timeout_s:g} s and was cancelled") from None
            refused = error.code in (INVALID_PARAMS, METHOD_NOT_FOUND)
            raise ToolError(422 if refused else 500, redact(error.message)) from None
        except (RuntimeError, ValueError) as error:
            # The library raises these for an answer that is invalid or does not fit the tool's schema.
            raise ToolError(500, redact(f"{tool} gave an invalid answer: {error}")) from None
        finally:
            calling.cancel()
        text = _text_of(result)
        if result.is_error:
            raise ToolError(500, redact(text))
        return text

    async def close(self) -> None:
        """End the connection, and the server's process if it has one."""
        self._closing.set()
        if self._life is not None:
            _, alive = await asyncio.wait([self._life], timeout=CLOSE_S if self._opened.is_set() else 0)
            for life in alive:
                life.cancel()
                await asyncio.wait([life], timeout=CLOSE_S)

    async def _live(self) -> None:
        from mcp import Client

        async with contextlib.AsyncExitStack() as stack:
            # Log messages are not read, so a server that logs much does not fill the memory.
            client = await stack.enter_async_context(Client(await self._transport(stack), cache=None))
            cursor = None
            while True:
                page = await client.list_tools(cursor=cursor)
                self.tools |= {tool.name: tool for tool in page.tools}
                cursor = page.next_cursor
                if cursor is None:
                    break
            self._client = client
            self._opened.set()
            await self._closing.wait()

    async def _transport(self, stack: contextlib.AsyncExitStack) -> Any:
        import httpx2
        from mcp import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        options = self._options
        if options.command is not None:
            program, *rest = options.command
            parameters = StdioServerParameters(
                command=sys.executable if program == "python" else program,
                args=rest,
                env={name: value.get_secret_value() for name, value in options.env.items()},
                cwd=options.cwd or await stack.enter_async_context(_empty_folder()),
            )
            self._stderr = stack.enter_context(closing(_StandardError()))
            return stdio_client(parameters, errlog=self._stderr.file)
        assert options.url is not None
        headers = {name: value.get_secret_value() for name, value in options.headers.items()}
        http = await stack.enter_async_context(
            httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30.0, read=None))
        )
        return streamable_http_client(options.url, http_client=http)

    def _lost_during(self, tool: str, reason: str) -> RolloutError:
        text = f"the MCP server {self.name} ended during {tool}: {reason}"
        return RolloutError(FailureClass.SESSION_LOST, text, stage=Stage.TOOL)

    def _why_it_ended(self) -> str:
        assert self._life is not None
        error: BaseException | None = None if self._life.cancelled() else self._life.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        reason = redact(f"{type(error).__name__}: {error}") if error else "it closed the connection"
        return f"{reason}{self._last_words()}"

    def _last_words(self) -> str:
        """Return the end of what the server's process wrote to standard error, after a colon; empty if it is silent."""
        words = "" if self._stderr is None else self._stderr.end()
        return f": {redact(words)}" if words else ""


class _StandardError:
    """The standard error of a server's process: its end is kept, and all of it goes to that of this process.

    Attributes:
        file: what the process writes to.
    """

    def __init__(self) -> None:
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self.file = os.fdopen(writing, "w")
        self._end = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reading, self._read)

    def end(self) -> str:
        self._read()
        return " ".join(self._end.decode(errors="replace").split())[-_LAST_CHARS:]

    def close(self) -> None:
        if not self.file.closed:
            self._read()
            self._loop.remove_reader(self._reading)
            os.close(self._reading)
            self.file.close()

    def _read(self) -> None:
        while not self.file.closed:
            try:
                data = os.read(self._reading, 1 << 16)
            except BlockingIOError:
                return
            self._end = (self._end + data)[-4 * _LAST_CHARS :]
            with contextlib.suppress(OSError):
                os.write(sys.stderr.fileno(), data)


@contextlib.asynccontextmanager
async def _empty_folder() -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="gymq-mcp-", ignore_cleanup_errors=True) as folder:
        yield folder


def _text_of(result: mcp.types.CallToolResult) -> str:
    """Return the text of an answer for a model: other content becomes JSON without its bytes."""
    if not result.content and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    parts = []
    for block in result.content:
        if block.type == "text":
            parts.append(block.text)
        elif block.type == "resource" and hasattr(block.resource, "text"):
            parts.append(block.resource.text)
        else:
            content = block.model_dump(
                mode="json", by_alias=True, exclude_none=True, exclude={"data": True, "resource": {"blob"}}
            )
            parts.append(json.dumps(content, ensure_ascii=False))
    return "\n".join(parts)
