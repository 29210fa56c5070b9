"""Options of `azure_openai_model`, checked before anything is sent."""

from __future__ import annotations

from typing import Literal

import pydantic
from gymq.workers.models.openai_model.options import OpenAIOptions

_VERSION = "api-version"


class AzureOpenAIOptions(OpenAIOptions):
    """Those of `openai_model`, where the model is the name of a deployment and requests are always chat."""

    default_query: dict[str, str]  # parameters of every URL; `api-version` is needed
    num_concurrent_requests: pydantic.PositiveInt
    dialect: Literal["chat"] = "chat"
    max_concurrent_requests: None = None  # here it is num_concurrent_requests

    @pydantic.field_validator("default_query")
    @classmethod
    def _check_version(cls, query: dict[str, str]) -> dict[str, str]:
        if not query.get(_VERSION):
            raise ValueError(f"{_VERSION} is missing; for example {{{_VERSION}: 2024-10-21}}")
        return query

    @property
    def request_limit(self) -> int:
        return self.num_concurrent_requests

    @property
    def api_version(self) -> str:
        return self.default_query[_VERSION]
