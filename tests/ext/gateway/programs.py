"""Programs with tools of their own, as they ask a model in each dialect: the whole history again in each turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from gymq.ext.gateway import Admission

MAX_TURNS = 6
TOOLS = ("add", "look")


async def _post(http: aiohttp.ClientSession, url: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {key}"}
    async with http.post(url, json=body, headers=headers, raise_for_status=True) as answer:
        read: dict[str, Any] = await answer.json()
        return read


async def responses(http: aiohttp.ClientSession, admission: Admission, params: dict[str, Any]) -> None:
    items = list(params["input"])
    for _ in range(MAX_TURNS):
        body = {**params, "model": "any", "input": items}
        reply = await _post(http, f"{admission.openai_url}/responses", admission.api_key, body)
        calls = [item for item in reply["output"] if item["type"] == "function_call"]
        items += reply["output"]
        items += [{"type": "function_call_output", "call_id": call["call_id"], "output": "4"} for call in calls]
        if not calls or reply.get("incomplete_details"):
            return


async def chat(http: aiohttp.ClientSession, admission: Admission, params: dict[str, Any]) -> None:
    messages = list(params["input"])
    tools = [_chat_tool(tool) for tool in params.get("tools") or ()]
    for _ in range(MAX_TURNS):
        body = {"model": "any", "messages": messages, **({"tools": tools} if tools else {})}
        reply = await _post(http, f"{admission.openai_url}/chat/completions", admission.api_key, body)
        [choice] = reply["choices"]
        messages.append(choice["message"])
        calls = choice["message"].get("tool_calls") or []
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "4"} for call in calls]
        if not calls or choice["finish_reason"] == "length":
            return


async def messages(http: aiohttp.ClientSession, admission: Admission, params: dict[str, Any]) -> None:
    said = list(params["input"])
    tools = [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in params.get("tools") or ()]
    for _ in range(MAX_TURNS):
        body = {"model": "any", "max_tokens": 100, "messages": said, "tools": tools}
        reply = await _post(http, f"{admission.anthropic_url}/v1/messages", admission.api_key, body)
        said.append({"role": "assistant", "content": reply["content"]})
        calls = [part for part in reply["content"] if part["type"] == "tool_use"]
        if not calls or reply["stop_reason"] == "max_tokens":
            return
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "4"} for call in calls]
        said.append({"role": "user", "content": results})


async def gemini(http: aiohttp.ClientSession, admission: Admission, params: dict[str, Any]) -> None:
    contents = [{"role": "user", "parts": [{"text": item["content"]}]} for item in params["input"]]
    declared = [
        {"name": tool["name"], "parametersJsonSchema": tool["parameters"]} for tool in params.get("tools") or ()
    ]
    for _ in range(MAX_TURNS):
        body = {"contents": contents, **({"tools": [{"functionDeclarations": declared}]} if declared else {})}
        url = f"{admission.gemini_url}/v1beta/models/any:generateContent"
        reply = await _post(http, url, admission.api_key, body)
        [candidate] = reply["candidates"]
        contents.append(candidate["content"])
        calls = [part["functionCall"] for part in candidate["content"]["parts"] if "functionCall" in part]
        if not calls or candidate["finishReason"] == "MAX_TOKENS":
            return
        results = [
            {"functionResponse": {"id": call.get("id"), "name": call["name"], "response": {"output": "4"}}}
            for call in calls
        ]
        contents.append({"role": "user", "parts": results})


def _chat_tool(tool: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


Program = Callable[[aiohttp.ClientSession, Admission, dict[str, Any]], Awaitable[None]]
PROGRAMS: dict[str, Program] = {"responses": responses, "chat": chat, "messages": messages, "gemini": gemini}
