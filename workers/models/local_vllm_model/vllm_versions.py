"""Names that vLLM moves from one release to the next, found in whichever place they are. vLLM 0.32 and 0.33."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_CLI = (  # newest first
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
)
_PLACES = {
    "make_arg_parser": _CLI,
    "validate_parsed_serve_args": _CLI,
    "init_app_state": (
        "vllm.entrypoints.launchers.api_server.app_state",
        "vllm.entrypoints.openai.api_server",
    ),
    "build_app": ("vllm.entrypoints.launchers.app", "vllm.entrypoints.openai.api_server"),
    "ChatCompletionRequest": ("vllm.entrypoints.openai.chat_completion.protocol",),
    "get_max_tokens": ("vllm.entrypoints.serve.utils.api_utils",),
    "tokens_input": ("vllm.inputs",),
    "IncrementalDetokenizer": ("vllm.v1.engine.detokenizer",),
    "is_mistral_tokenizer": ("vllm.utils.mistral",),
    "numpy2base64": ("vllm.utils.serial_utils",),
}


def find(name: str) -> Any:
    """Return a function of vLLM.

    Raises:
        ImportError: this version has it in none of the known places.
    """
    for module in _PLACES[name]:
        try:
            return getattr(import_module(module), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    raise ImportError(f"this version of vLLM has no {name} where gymq looks for it; 0.32 and 0.33 are known to work")
