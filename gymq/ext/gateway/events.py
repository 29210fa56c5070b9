"""A whole answer as the server-sent events that would have streamed it, in the dialects of Anthropic and Google."""

from __future__ import annotations

from collections.abc import Iterator

from gymq.ext.http.dialects import Body
from gymq.ext.http.events import data, event
from gymq.protocol.tokens import to_json


def of_gemini_answer(answer: Body) -> Iterator[bytes]:
    """Yield the chunks of an answer of Gemini's dialect, one for each part; the last one has the reason for the end."""
    (candidate,) = answer["candidates"]
    parts = candidate["content"]["parts"]
    for part in parts[:-1]:
        yield data({**answer, "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]})
    yield data({**answer, "candidates": [{**candidate, "content": {"role": "model", "parts": parts[-1:]}}]})


def of_message(message: Body) -> Iterator[bytes]:
    """Yield the events of a message of Anthropic's dialect."""
    usage = message["usage"]
    start = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 0}}
    yield event({"type": "message_start", "message": start})
    for index, block in enumerate(message["content"]):
        empty, deltas = _block_events(block)
        yield event({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            yield event({"type": "content_block_delta", "index": index, "delta": delta})
        yield event({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    yield event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage["output_tokens"]}})
    yield event({"type": "message_stop"})


def _block_events(block: Body) -> tuple[Body, list[Body]]:
    """Return a block as it begins, and its deltas."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            if block["signature"]:
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "tool_use":
            arguments = to_json(block["input"]).decode()
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments}]
    return block, []
