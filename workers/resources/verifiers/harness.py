"""The loop of an agent of verifiers in this process; the library's own harness starts a program for each rollout."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

from openai import AsyncOpenAI
from verifiers.v1 import Harness, HarnessConfig, ModelContext, ProgramResult, Runtime, TaskData, Trace
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp

__all__ = ["InProcessHarness"]


class InProcessHarness(Harness[HarnessConfig]):
    """Asks the model and runs the tools that it calls, until it calls none."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: ModelContext,
        trace: Trace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
    ) -> ProgramResult:
        urls = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
        messages = self._messages(data)
        async with AsyncExitStack() as stack:
            tools, found, servers = await connect_mcp({"mcpServers": urls}, stack)
            client = await stack.enter_async_context(
                AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0, timeout=None)
            )
            while True:
                request: dict[str, Any] = {"model": ctx.model, "messages": messages}
                completion = await client.chat.completions.create(**request, **({"tools": tools} if tools else {}))
                message: Any = completion.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                if not message.tool_calls:
                    return ProgramResult(exit_code=0, stdout="", stderr="")
                for call in message.tool_calls:
                    content = await _called(servers, found, call.function.name, call.function.arguments)
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": content})

    def _messages(self, data: TaskData) -> list[dict[str, Any]]:
        system, prompt = self.resolve_prompt(data)
        begin = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            return [*begin, {"role": "user", "content": prompt}]
        return [*begin, *map(message_to_wire, prompt or [])]


async def _called(servers: dict[str, Any], tools: dict[str, Any], name: str, arguments: str) -> Any:
    """Return what a tool answers; a call that cannot be made is answered with the reason."""
    if name not in tools:
        return f"error: unknown tool {name!r}"
    try:
        given = json.loads(arguments or "{}")
    except ValueError as error:
        return f"error: invalid JSON in tool arguments ({error}); resend the call with valid JSON"
    if not isinstance(given, dict):
        return f"error: tool arguments must be a JSON object, got {type(given).__name__}; resend as an object"
    return await call_mcp(servers, tools, name, given)
