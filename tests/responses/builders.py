"""Short ways to write items, requests and captured calls in the tests of this folder."""

from typing import Any

Json = dict[str, Any]


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str, **more: Any) -> Json:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part], **more}


def reasoning(*texts: str, **more: Any) -> Json:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": "rs_1", "summary": summary, **more}


def call(call_id: object = "c1", name: object = "add", arguments: object = "{}", **more: Any) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def output(call_id: str = "c1", value: Any = "3") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": value}


def tool(name: object = "add", **more: Any) -> Json:
    return {
        "type": "function",
        "name": name,
        "description": "Add numbers.",
        "parameters": {"type": "object", "properties": {}},
        "strict": True,
        **more,
    }


def tokens(prompt: Any, generated: Any, log_probs: Any = None) -> Json:
    return {
        "prompt_token_ids": prompt,
        "generation_token_ids": generated,
        "generation_log_probs": [-0.5] * len(generated) if log_probs is None else log_probs,
    }


def response(*items: Json, **more: Any) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1.0,
        "model": "m",
        "output": list(items),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **more,
    }


def completion(message: Json, finish_reason: str = "stop", **more: Any) -> Json:
    choice = {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", **message}}
    return {"id": "c", "object": "chat.completion", "created": 5, "model": "x", "choices": [choice], **more}


def captured(call_id: str, prompt: list[int], generated: list[int], created_at: float = 1, **more: Any) -> Json:
    return {
        "rollout_id": "r0",
        "model_call_id": call_id,
        "created_at": created_at,
        "output_items": [],
        "token_item_index": None,
        **tokens(prompt, generated),
        **more,
    }
