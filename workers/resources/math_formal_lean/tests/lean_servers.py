"""Mocks for the places where Lean runs: real HTTP, the requests checked as the real ones check them.

Instead of compiling they look for words in the program: `loop` takes longer than the time limit, `sorry` is warned of,
`wrong` is an error in its line.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

PATH = "/lean4/my_project/tmp1234.lean"
SORRY = "declaration uses 'sorry'"

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(path: str, answer: Answer) -> AsyncIterator[tuple[str, int]]:
    """Host and port of a server that answers posts to a path."""
    app = web.Application()
    app.router.add_post(path, answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield host, port
    finally:
        await runner.cleanup()


FINISH = re.compile(r'#print "(\w+) begin"\n(?:#print axioms _root_\.(\S+)\n)?#print "(\w+) end"\n\Z')


def printed_at_the_end(program: str) -> list[str]:
    """What the commands behind a program print, if the compiler gets there."""
    finish = FINISH.search(program)
    if finish is None or "exit 0" in program:
        return []
    begin, name, end = finish.groups()
    axioms = "propext,\n Classical.choice" + (",\n Lean.ofReduceBool" if "native_decide" in program else "")
    theorem = [] if name is None else [f"'{name}' depends on axioms: [{axioms}]"]
    return [f"{begin} begin", *theorem, f"{end} end"]


def found(program: str) -> list[tuple[int, int, str, str]]:
    """Line, column, severity and text of each message."""
    messages = []
    for number, line in enumerate(program.split("\n"), 1):
        if "wrong" in line:
            messages.append((number, line.index("wrong"), "error", "unknown identifier 'wrong'\n⊢ False"))
        if "sorry" in line:
            messages.append((number, line.index("sorry"), "warning", SORRY))
    return messages


async def sandbox(request: web.Request) -> web.StreamResponse:
    """Answers as the sandbox of NeMo Skills: messages on standard output, which is cut."""
    body = await request.json()
    assert body["language"] == "lean4"
    assert isinstance(body["timeout"], float)
    program: str = body["generated_code"]
    if "loop" in program:
        return web.json_response({"process_status": "timeout", "stdout": "", "stderr": "Timed out\n"})
    messages = found(program)
    printed = "".join(f"{PATH}:{line}:{column}: {kind}: {text}\n" for line, column, kind, text in messages)
    failed = any(kind == "error" for _, _, kind, _ in messages)
    printed += "".join(f"{line}\n" for line in printed_at_the_end(program))
    answer = {"process_status": "failed" if failed else "completed", "stdout": printed, "stderr": ""}
    return web.json_response({**answer, "stdout": printed[: body["max_output_characters"]]})


async def kimina(request: web.Request) -> web.StreamResponse:
    """Answers as a Kimina Lean Server, which wants a key."""
    if request.headers.get("Authorization") != "Bearer the-key":
        return web.json_response({"detail": "Missing or invalid API key"}, status=401)
    body = await request.json()
    (snippet,) = body["snippets"]
    assert snippet.keys() == {"id", "code"}
    assert isinstance(body["timeout"], int)
    return web.json_response({"results": [{"id": snippet["id"], "time": 0.1, **_checked(snippet["code"], body)}]})


def _checked(program: str, body: dict[str, Any]) -> dict[str, Any]:
    if "loop" in program:
        return {"error": f"Lean REPL command timed out in {body['timeout']}.0 seconds"}
    if "crash" in program:
        return {"error": "Lean REPL process ended"}
    if "unparsed" in program:
        return {"response": {"message": "Could not parse JSON"}}
    messages = [
        {"severity": kind, "pos": {"line": line, "column": column}, "endPos": None, "data": text}
        for line, column, kind, text in found(program)
    ]
    last = program.count("\n")
    messages += [
        {"severity": "info", "pos": {"line": last, "column": 0}, "endPos": None, "data": line}
        for line in printed_at_the_end(program)
    ]
    sorries = [{"pos": one["pos"], "endPos": one["pos"], "goal": ""} for one in messages if one["data"] == SORRY]
    response: dict[str, Any] = {"env": 0}
    if messages:
        response["messages"] = messages
    if sorries:
        response["sorries"] = sorries
    return {"response": response}


async def hanging(_request: web.Request) -> web.StreamResponse:
    """Never answers."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def answering(status: int, text: str) -> Answer:
    """Always answers this."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text)

    return answer
