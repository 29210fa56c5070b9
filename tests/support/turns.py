"""Results of rollouts with tokens, turn by turn."""

from typing import Any

from tests.support.engine import Body
from tests.support.experts import npy


def result_of(turns: int, **members: Any) -> Body:
    """A rollout of so many turns: turn i generates [100 + i, 2] and sees [200 + i] before it."""
    output: list[Body] = []
    seen = [1, 7]
    for turn in range(turns):
        prompt = seen if turn == 0 else [*seen, 200 + turn]
        generation = [100 + turn, 2]
        output.append({"type": "reasoning", "summary": []})
        output.append(
            {
                "type": "message",
                "prompt_token_ids": prompt,
                "generation_token_ids": generation,
                "generation_log_probs": [-0.25, -0.5 - turn],
                "routed_experts": npy([[[turn, token]] for token in range(len(prompt) + 1)]),
            }
        )
        output.append({"type": "function_call_output", "output": "x"})
        seen = prompt + generation
    return {"reward": 0.5, "response": {"output": output}, "responses_create_params": {"input": ""}, **members}
