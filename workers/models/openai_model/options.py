"""Options of `openai_model`, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import pydantic
from gymq.workers.models.openai_model.connection import ApiKey, BaseUrl, Headers, request_headers, secrets_of
from gymq.workers.models.openai_model.endpoint_model import EndpointOptions


class OpenAIOptions(EndpointOptions):
    """Where the endpoint is and how it wants to be asked. Keys and header values are not shown in any text."""

    openai_base_url: BaseUrl
    openai_api_key: ApiKey
    openai_model: str  # takes the place of the request's `model`
    dialect: Literal["auto", "responses", "chat"] = "auto"
    extra_body: dict[str, Any] = pydantic.Field({})  # fields of the body that a request does not set itself
    openai_default_headers: Headers = pydantic.Field({})
    drop_input_reasoning_items: bool = False

    def headers(self) -> dict[str, str]:
        return request_headers(self.openai_api_key, self.openai_default_headers)

    def secrets(self) -> Iterable[str]:
        return secrets_of(self.openai_api_key, self.openai_default_headers)
