"""A provider, asked through LiteLLM, which knows its paths, its dialect and its ways to sign in.

Tries, limits and errors are those of every other endpoint: the library makes one try at a time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from gymq.workers.models.litellm_model.options import LiteLLMOptions
from gymq.workers.models.openai_model.endpoint import Endpoint, Head

import gymq

# Without these the library asks the internet for prices and reads a file .env when it is imported.
os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
for _what in ("ANTHROPIC_BETA_HEADERS", "AUTOROUTER_PRESETS", "BLOG_POSTS", "MODEL_COST_MAP", "POLICY_TEMPLATES"):
    os.environ.setdefault(f"LITELLM_LOCAL_{_what}", "True")

try:
    import litellm
    import openai
except ImportError:
    litellm = None

_STATUS_UNKNOWN = 500
_CONTEXT_FULL = "context_length_exceeded"


class Provider(Endpoint):
    """Asks the model that a request names."""

    def __init__(self, options: LiteLLMOptions) -> None:
        """
        Raises:
            OptionsError: the library is not installed, or knows no such provider.
        """
        if litellm is None:
            raise gymq.OptionsError("litellm_model needs LiteLLM: pip install 'gymq[litellm]', or `isolated: true`")
        litellm.suppress_debug_info = True
        litellm.telemetry = False
        try:
            _, provider, _, _ = litellm.get_llm_provider(options.openai_model, api_base=options.openai_base_url or None)
        except Exception:
            text = f"openai_model: LiteLLM knows no provider of {options.openai_model!r}; write PROVIDER/MODEL"
            raise gymq.OptionsError(text) from None
        super().__init__(
            options.openai_base_url or f"litellm://{provider}",
            headers={},
            secrets=options.secrets(),
            max_concurrent_requests=options.request_limit,
        )
        headers = {name: value.get_secret_value() for name, value in options.openai_default_headers.items()}
        self._connection = {
            "api_base": options.openai_base_url or None,
            "api_key": options.openai_api_key.get_secret_value() or None,
            "extra_headers": headers or None,
            "max_retries": 0,
            "num_retries": 0,
            **options.litellm_params,
        }

    async def start(self) -> None:
        """There is nothing to open: the library keeps its own connections."""

    async def stop(self) -> None:
        await litellm.close_litellm_async_clients()

    async def models(self) -> dict[str, int | None]:
        return {}  # providers list them in many ways

    async def _exchange(
        self, path: str, asked: Mapping[str, Any], _headers: Mapping[str, str] | None
    ) -> dict[str, Any]:
        url = f"{self.base_url} {asked['model']}"
        try:
            answer = await litellm.acompletion(**{**self._connection, **asked})
        except openai.APIError as error:
            raise self._of_provider(url, error) from None
        body = answer.model_dump_json(exclude_none=True).encode()
        return self._parsed(url, Head(200, "", {"Content-Type": "application/json"}), body)

    def _of_provider(self, url: str, error: openai.APIError) -> Exception:
        """Return an error of the library as an endpoint's answer with its status, which decides about further tries."""
        status = getattr(error, "status_code", None) or _STATUS_UNKNOWN
        given = getattr(error, "litellm_response_headers", None) or {}  # those of `error.response` may be made up
        headers = {name.title(): value for name, value in given.items()}
        is_full = isinstance(error, litellm.ContextWindowExceededError)
        body = {"error": {"message": error.message, "code": _CONTEXT_FULL if is_full else ""}}
        return self._error(url, Head(int(status), "", headers), msgspec.json.encode(body))
