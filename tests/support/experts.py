"""Routed experts as engines return them."""

import base64
import io
from typing import Any

import numpy

Body = dict[str, Any]


def npy(experts: Any, dtype: str = "uint8") -> str:
    """Return experts as text, as vLLM does."""
    file = io.BytesIO()
    numpy.save(file, numpy.array(experts, dtype=dtype))
    return base64.b64encode(file.getvalue()).decode()


def with_experts(completion: Body) -> None:
    """Add experts to a reply, as vLLM does: those of token t are t and 1, and the last token has none."""
    (choice,) = completion["choices"]
    message = choice["message"]
    num_tokens = len(message["prompt_token_ids"]) + len(message["generation_token_ids"])
    choice["routed_experts"] = npy([[[token, 1]] for token in range(num_tokens - 1)])
