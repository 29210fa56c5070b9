"""Compiling a Lean program elsewhere: a sandbox as NeMo Skills has it, or a Kimina Lean Server.

A program may run code while it is compiled, so it is never compiled here.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

import aiohttp

import gymq

COMPLETED, FAILED, TIMEOUT = "completed", "failed", "timeout"

# A warning can stand behind whatever a program prints, so everything is asked for. Beyond this nothing is decided.
MAX_OUTPUT_CHARACTERS = 1_000_000

CONNECT_TIMEOUT_S = 10.0
SANDBOX_EXTRA_S = 5.0  # beyond the compiler's own time limit
KIMINA_EXTRA_S = 300.0  # beyond that: a request waits there until a Lean process is free


class CompilerOutput(NamedTuple):
    """What a compiler made of a program."""

    process_status: str  # `completed`, `timeout`, or another word for what happened
    stdout: str
    stderr: str


class Compiler(Protocol):
    """Compiles programs."""

    async def compile(self, program: str, timeout_s: float) -> CompilerOutput:
        """
        Raises:
            ComponentFailed: it could not be tried.
        """
        ...


Post = Callable[[str, dict[str, Any], float], Awaitable[tuple[int, str]]]
"""Posts JSON to a URL within some seconds; gives status and body.

Raises:
    TimeoutError: there is a connection, but no answer in time.
    ComponentFailed: there is no connection, or it broke off.
"""


class Http:
    """Posts over connections that stay open."""

    def __init__(self, headers: dict[str, str]) -> None:
        # No limit: a request must not spend its time waiting for a connection.
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers)

    async def close(self) -> None:
        await self._session.close()

    async def post(self, url: str, body: dict[str, Any], timeout_s: float) -> tuple[int, str]:
        """See `Post`."""
        timeout = aiohttp.ClientTimeout(total=timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
        try:
            async with self._session.post(url, json=body, timeout=timeout, allow_redirects=False) as response:
                return response.status, await response.text(errors="replace")
        except aiohttp.ConnectionTimeoutError:
            raise gymq.ComponentFailed(f"{url}: cannot connect: no answer within {CONNECT_TIMEOUT_S:g} s") from None
        except aiohttp.ClientError as error:
            raise gymq.ComponentFailed(f"{url}: {error or type(error).__name__}") from None


class Sandbox:
    """`POST /execute`, as the sandbox of NeMo Skills answers it."""

    def __init__(self, base_url: str, post: Post) -> None:
        self._url = base_url.rstrip("/") + "/execute"
        self._post = post

    async def compile(self, program: str, timeout_s: float) -> CompilerOutput:
        """No answer within the time limit and some seconds counts as the program's time limit."""
        body = {
            "generated_code": program,
            "language": "lean4",
            "timeout": timeout_s,
            "max_output_characters": MAX_OUTPUT_CHARACTERS,
        }
        try:
            answer = _answer(self._url, *await self._post(self._url, body, timeout_s + SANDBOX_EXTRA_S))
        except TimeoutError:
            return CompilerOutput(TIMEOUT, "", "")
        members = [member for name in CompilerOutput._fields if isinstance(member := answer.get(name), str)]
        if len(members) < len(CompilerOutput._fields):
            names, text = ", ".join(CompilerOutput._fields), json.dumps(answer)[:200]
            raise gymq.ComponentFailed(f"{self._url}: the answer must have the text fields {names}: {text}")
        return CompilerOutput(*members)


class Kimina:
    """`POST /api/check` of a Kimina Lean Server (https://github.com/project-numina/kimina-lean-server)."""

    def __init__(self, base_url: str, post: Post) -> None:
        self._url = base_url.rstrip("/") + "/api/check"
        self._post = post

    async def compile(self, program: str, timeout_s: float) -> CompilerOutput:
        """Return the server's messages, written as the compiler prints them."""
        # The server takes whole seconds.
        body = {"snippets": [{"id": "0", "code": program}], "timeout": max(1, round(timeout_s))}
        try:
            answer = _answer(self._url, *await self._post(self._url, body, timeout_s + KIMINA_EXTRA_S))
        except TimeoutError:
            raise gymq.ComponentFailed(f"{self._url}: no answer within {timeout_s + KIMINA_EXTRA_S:g} s") from None
        try:
            (result,) = answer["results"]
            error, response = result.get("error"), result.get("response")
            if error is not None and "timed out" in error:
                return CompilerOutput(TIMEOUT, "", error)
            if error is not None or "message" in response:
                raise gymq.ComponentFailed(f"{self._url}: {error or response['message']}")
            return _printed(response.get("messages") or [], response.get("sorries") or [])
        except (AttributeError, KeyError, TypeError, ValueError):
            text = json.dumps(answer)[:200]
            raise gymq.ComponentFailed(f"{self._url}: the answer is not that of a Kimina Lean Server: {text}") from None


def _printed(messages: list[Any], sorries: list[Any]) -> CompilerOutput:
    places = [(one["pos"]["line"], one["pos"]["column"], one["severity"], one["data"]) for one in messages]
    places += [(one["pos"]["line"], one["pos"]["column"], "warning", "declaration uses 'sorry'") for one in sorries]
    failed = any(severity == "error" for _, _, severity, _ in places)
    text = "".join(f"program.lean:{line}:{column}: {severity}: {data}\n" for line, column, severity, data in places)
    return CompilerOutput(FAILED if failed else COMPLETED, text, "")


def _answer(url: str, status: int, body: str) -> dict[str, Any]:
    if status // 100 != 2:
        raise gymq.ComponentFailed(f"{url}: answered with status {status}: {body:.200}")
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise gymq.ComponentFailed(f"{url}: the answer is not JSON: {body:.200}") from None
    if not isinstance(answer, dict):
        raise gymq.ComponentFailed(f"{url}: the answer is not a JSON object: {body:.200}")
    return answer
