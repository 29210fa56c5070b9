"""Building a reply: output items, the tokens they stand for, the Responses object around them."""

from __future__ import annotations

from array import array
from typing import Any

from gymq.workers.models.simulated_model.filler import END_OF_TURN, Sampled, num_tokens, sampled, tokens
from gymq.workers.models.simulated_model.prefix_cache import PrefixCache

from gymq.protocol.tokens import to_json

_END_OF_TURN = sampled(array("i", [END_OF_TURN]))


class Output:
    """The items of one reply. With `token_ids` the last one carries the token fields of the whole reply."""

    def __init__(self, reply_id: str, *, token_ids: bool) -> None:
        self.items: list[dict[str, Any]] = []
        self.num_tokens = 0
        self.num_reasoning_tokens = 0
        self._reply_id = reply_id
        self._sampled = Sampled(array("i"), array("f")) if token_ids else None

    def add_reasoning(self, text: str, made_of: Sampled) -> None:
        item = {"type": "reasoning", "id": self._id("rs"), "summary": [{"type": "summary_text", "text": text}]}
        self.items.append(item)
        self.num_reasoning_tokens += len(made_of.ids)
        self._add(made_of)

    def add_message(self, text: str, made_of: Sampled | None = None) -> None:
        """`made_of`: the text's tokens, where known."""
        self.items.append(
            {
                "type": "message",
                "id": self._id("msg"),
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            }
        )
        if made_of is None:
            self._add_text(text)
        else:
            self._add(made_of)

    def add_call(self, name: str, arguments: str) -> None:
        call_id = self._id("call")
        self.items.append(
            {
                "type": "function_call",
                "id": call_id,
                "call_id": call_id,
                "name": name,
                "arguments": arguments,
                "status": "completed",
            }
        )
        self._add_text(name + arguments)

    def end_turn(self) -> None:
        """Add the token by which an engine ends a turn."""
        self._add(_END_OF_TURN)

    def response(
        self, params: dict[str, Any], cache: PrefixCache | None, num_cached_tokens: int, *, incomplete: bool
    ) -> dict[str, Any]:
        """Return the Responses object; `incomplete`: the limit of output tokens truncated it."""
        if self._sampled is None and cache is None:
            num_input_tokens = num_tokens(len(to_json(params["input"])))
        else:
            prompt = prompt_ids(params)
            num_input_tokens = len(prompt)
        if cache is not None:
            cache.keep(prompt if self._sampled is None else prompt + self._sampled.ids)
        if self._sampled is not None:
            last = self.items[-1]
            last["prompt_token_ids"] = prompt
            last["generation_token_ids"] = self._sampled.ids
            last["generation_log_probs"] = self._sampled.log_probs
        return {
            "id": f"resp_{self._reply_id}",
            "object": "response",
            "created_at": 0,  # the time would make equal replies differ
            "model": params.get("model") or "simulated",
            "status": "incomplete" if incomplete else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if incomplete else None,
            "output": self.items,
            "parallel_tool_calls": params.get("parallel_tool_calls") is not False,
            "tool_choice": params.get("tool_choice") or "auto",
            "tools": params.get("tools") or [],
            "usage": {
                "input_tokens": num_input_tokens,
                "input_tokens_details": {"cached_tokens": num_cached_tokens, "cache_write_tokens": 0},
                "output_tokens": self.num_tokens,
                "output_tokens_details": {"reasoning_tokens": self.num_reasoning_tokens},
                "total_tokens": num_input_tokens + self.num_tokens,
            },
        }

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._reply_id}_{len(self.items)}"

    def _add_text(self, text: str) -> None:
        data = text.encode()
        if self._sampled is None:
            self.num_tokens += num_tokens(len(data))
        else:
            self._add(sampled(tokens(data)))

    def _add(self, made_of: Sampled) -> None:
        self.num_tokens += len(made_of.ids)
        if self._sampled is not None:
            self._sampled.ids.extend(made_of.ids)
            self._sampled.log_probs.extend(made_of.log_probs)


def prompt_ids(params: dict[str, Any]) -> array[int]:
    """Return the ids of the conversation: those of the last reply that has some, unchanged, then what came after it."""
    items = params["input"]
    for position in range(len(items) - 1, -1, -1):
        item = items[position]
        if item.get("generation_token_ids") is not None and item.get("prompt_token_ids") is not None:
            ids = array("i", item["prompt_token_ids"])
            ids.extend(array("i", item["generation_token_ids"]))
            rest = items[position + 1 :]
            break
    else:
        ids = tokens(to_json([params.get("instructions"), params.get("tools")]))
        rest = items
    for item in rest:
        ids.extend(tokens(to_json(item)))
    return ids
