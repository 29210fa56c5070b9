"""The engine that is measured: the tiny policy on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

POLICY = Path(__file__).parents[2] / "examples" / "tiny_policy" / "checkpoint"

ON_CPU = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}


def options(*, replicas: int = 1) -> dict[str, Any]:
    """Options of `local_vllm_model`."""
    return {
        "model": str(POLICY),
        "return_token_id_information": True,
        "uses_reasoning_parser": False,
        "num_workers": replicas,
        "vllm_serve_env_vars": ON_CPU,
        "vllm_serve_kwargs": {
            "enforce_eager": True,
            "dtype": "float32",
            "kv_cache_memory_bytes": 128 << 20,
            "max_model_len": 1024,
            "max_num_seqs": 256,
            "distributed_executor_backend": "uni",
            "enable_prompt_tokens_details": True,
            "block_size": 32,  # the smallest of the CPU, where 128 is usual; GPUs have 16
        },
    }


def user_message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def params(text: str, tokens: int) -> dict[str, Any]:
    """A request for exactly so many tokens."""
    return {
        "input": [user_message(text)],
        "max_output_tokens": tokens,
        "metadata": {"extra_body": '{"ignore_eos": true}'},
    }
