"""What NeMo RL makes of a result of `/run`, made again in plain lists from what is known of it: an oracle.

Its environment walks the items of a response. Each that has sampled tokens becomes two entries, what was new in the
prompt and what was sampled; a prompt has to begin with all tokens before it.
"""

import array
import base64
import math
from typing import Any

Body = dict[str, Any]
TYPECODES = {"int8": "b", "int16": "h", "int32": "i"}


def packed_experts(tokens: int, layers: int, k: int, first: int) -> str:
    """Routed experts that differ for each token: those of token t begin with `first + t`."""
    numbers = array.array(
        "h",
        ((first + token + layer + at) % 999 for token in range(tokens) for layer in range(layers) for at in range(k)),
    )
    return f"nrlre1:int16:{tokens}x{layers}x{k}:{base64.b64encode(numbers.tobytes()).decode()}"


def unpacked_experts(text: str) -> list[list[list[int]]]:
    magic, name, shape, data = text.split(":")
    assert magic == "nrlre1"
    numbers = array.array(TYPECODES[name])
    numbers.frombytes(base64.b64decode(data))
    tokens, layers, k = map(int, shape.split("x"))
    assert len(numbers) == tokens * layers * k
    flat = numbers.tolist()
    rows = [flat[at * k : (at + 1) * k] for at in range(tokens * layers)]
    return [rows[at * layers : (at + 1) * layers] for at in range(tokens)]


def post_processed(result: Body) -> list[Body]:
    """The message log of a result; an assertion fails where NeMo RL would refuse it."""
    log: list[Body] = []
    seen: list[int] = []
    for item in result["response"]["output"]:
        sampled = item.get("generation_token_ids")
        if not sampled:
            continue
        prompt, log_probs = item["prompt_token_ids"], item["generation_log_probs"]
        assert prompt[: len(seen)] == seen, "a prompt does not continue the sequence"
        assert len(log_probs) == len(sampled)
        assert not any(math.isnan(value) for value in log_probs)
        asked: Body = {"role": "user", "token_ids": prompt[len(seen) :]}
        said: Body = {"role": "assistant", "token_ids": sampled, "generation_logprobs": log_probs}
        text = "".join(part["text"] for part in item.get("content") or item.get("summary") or ())
        said["is_invalid_tool_call"] = "tool_call>" in text or "function_call>" in text
        said["has_malformed_thinking"] = item["type"] == "message" and "think>" in text
        if item.get("routed_experts") is not None:
            experts = unpacked_experts(item["routed_experts"])
            assert len(experts) >= len(prompt) + len(sampled), "too few routed experts"
            if seen:
                log[-1]["routed_experts"][-1] = experts[len(seen) - 1]
            asked["routed_experts"] = experts[len(seen) : len(prompt)]
            said["routed_experts"] = experts[len(prompt) : len(prompt) + len(sampled)]
        log += [asked, said]
        seen = prompt + sampled
    assert log, "there is nothing to train on"
    return log
