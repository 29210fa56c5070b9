"""Options of `litellm_model`, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import pydantic
from gymq.workers.models.openai_model.connection import ApiKey, BaseUrl
from gymq.workers.models.openai_model.options import OpenAIOptions

from gymq.redaction import names_secret

# These decide about more than one request, or replace what gymq does itself.
_NOT_FOR_PARAMS = frozenset(
    {"api_base", "api_key", "base_url", "cache", "fallbacks", "messages", "mock_response", "model", "n", "stream"}
)


class LiteLLMOptions(OpenAIOptions):
    """Those of `openai_model`, where the model is named as LiteLLM names it and requests are always chat."""

    openai_base_url: BaseUrl = ""  # empty: where LiteLLM finds the provider
    openai_api_key: ApiKey = pydantic.SecretStr("")  # empty: LiteLLM looks into the provider's environment variables
    dialect: Literal["chat"] = "chat"
    litellm_params: dict[str, Any] = pydantic.Field({}, repr=False)  # further arguments of `litellm.acompletion`

    @pydantic.field_validator("litellm_params")
    @classmethod
    def _check_params(cls, params: dict[str, Any]) -> dict[str, Any]:
        for name in params:
            if name in _NOT_FOR_PARAMS:
                raise ValueError(f"{name} cannot be given here")
        return params

    def secrets(self) -> Iterable[str]:
        hidden = [value for name, value in self.litellm_params.items() if names_secret(name) and isinstance(value, str)]
        return [*super().secrets(), *hidden]
