"""What trainers do with a result, made again from what is known of them: oracles."""

import math
from typing import Any

Body = dict[str, Any]


def nemo_rl_message_log(result: Body) -> list[Body]:
    """The message log that NeMo RL makes; it stops at a prompt that does not continue what was seen."""
    seen: list[int] = []
    log: list[Body] = []
    for item in result["response"]["output"]:
        if not item.get("generation_token_ids"):
            continue
        prompt = item["prompt_token_ids"]
        assert prompt[: len(seen)] == seen, "non-contiguous"
        generation, log_probs = item["generation_token_ids"], item["generation_log_probs"]
        assert len(generation) == len(log_probs)
        assert all(map(math.isfinite, log_probs))
        log.append({"role": "user", "token_ids": prompt[len(seen) :]})
        log.append({"role": "assistant", "token_ids": generation, "generation_logprobs": log_probs})
        seen = prompt + generation
    assert log, "no generation data"
    return log


def nemo_rl_is_infra(status: int) -> bool:
    """Whether NeMo RL dispatches the row again."""
    return status >= 500 or status in (408, 429)


def trl_masks(body: Any) -> bool:
    """Whether the TRL script takes a body for a failed rollout. It does not look at the status."""
    return not isinstance(body, dict) or bool(body.get("error"))
