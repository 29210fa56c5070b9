"""What the tests of vLLM share: the policy, options for a CPU, requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gymq.workers.models.local_vllm_model.worker import LocalVLLMModel

import gymq
from gymq import responses

ROOT = Path(__file__).parents[2]
POLICY = ROOT / "examples" / "tiny_policy" / "checkpoint"
WEIGHTS_FILE = "model.safetensors"
MAX_MODEL_LEN = 512
QUESTION = "What is 3 + 4?"

ON_CPU = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
ADD = {
    "type": "function",
    "name": "add",
    "description": "Add two integers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "strict": True,
}


def options(**changed: Any) -> dict[str, Any]:
    """Options of a worker with the tiny policy on a CPU."""
    serve = {
        "enforce_eager": True,
        "dtype": "float32",
        "kv_cache_memory_bytes": 64 << 20,
        "max_model_len": MAX_MODEL_LEN,
        "max_num_seqs": 64,
        "max_logprobs": -1,
        "distributed_executor_backend": "uni",
        "enable_auto_tool_choice": True,
        "tool_call_parser": "hermes",
    }
    given = {
        "model": str(POLICY),
        "return_token_id_information": True,
        "uses_reasoning_parser": False,
        "vllm_serve_env_vars": {**ON_CPU, "HF_HUB_OFFLINE": "1"},
        "vllm_serve_kwargs": serve | changed.pop("vllm_serve_kwargs", {}),
    }
    return given | changed


def asked(text: str | list[dict[str, Any]], timeout_s: float = 120.0, **params: Any) -> gymq.ModelRequest:
    """A request with one user message, or with the items of a conversation."""
    items = [responses.user_message(text)] if isinstance(text, str) else text
    return gymq.ModelRequest({"input": items, **params}, "test/0/0/1", "test/0/0", timeout_s)


def engine_of(model: LocalVLLMModel) -> Any:
    """The engine in this process."""
    return model._engine


def mute(checkpoint: Path) -> None:
    """Set the output layer to zero: every token becomes equally likely."""
    from safetensors import torch as safetensors

    tensors = safetensors.load_file(checkpoint / WEIGHTS_FILE)
    tensors["lm_head.weight"].zero_()
    safetensors.save_file(tensors, checkpoint / WEIGHTS_FILE, metadata={"format": "pt"})


async def certainty(model: LocalVLLMModel) -> float:
    """The mean log prob of a greedy reply."""
    reply = await model.respond(asked(QUESTION, temperature=0.0, max_output_tokens=4))
    log_probs = list(reply["output"][-1]["generation_log_probs"])
    return sum(log_probs) / len(log_probs)
