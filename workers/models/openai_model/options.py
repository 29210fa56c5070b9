"""Options of `openai_model`, checked before anything is sent."""

from __future__ import annotations

import re
from typing import Any, Literal
from urllib.parse import urlsplit

import pydantic

import gymq

# RFC 9110: a token, and visible characters with single blanks between them.
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[!-~]+( [!-~]+)*")


class OpenAIOptions(gymq.WorkerOptions):
    """Where the endpoint is and how it wants to be asked. Keys and header values are not shown in any text."""

    openai_base_url: str
    openai_api_key: pydantic.SecretStr
    openai_model: str  # takes the place of the request's `model`
    dialect: Literal["responses", "chat"] = "responses"
    extra_body: dict[str, Any] = pydantic.Field({})  # members of the body that a request does not set itself
    openai_default_headers: dict[str, pydantic.SecretStr] = pydantic.Field({})
    max_concurrent_requests: pydantic.PositiveInt | None = None  # from this process
    drop_input_reasoning_items: bool = False

    @pydantic.field_validator("openai_base_url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("expected a URL such as https://api.openai.com/v1")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("no user, query or fragment in the URL, please; a key belongs into openai_api_key")
        return url

    @pydantic.field_validator("openai_api_key")
    @classmethod
    def _check_key(cls, key: pydantic.SecretStr) -> pydantic.SecretStr:
        if not _HEADER_VALUE.fullmatch(key.get_secret_value()):
            raise ValueError("empty, or characters that cannot be sent; an endpoint without keys takes any text")
        return key

    @pydantic.field_validator("openai_default_headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, pydantic.SecretStr]) -> dict[str, pydantic.SecretStr]:
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"{name!r} cannot be the name of a header")
            if not _HEADER_VALUE.fullmatch(value.get_secret_value()):
                raise ValueError(f"the value of {name} is empty or has characters that cannot be sent")
        return headers

    def headers(self) -> dict[str, str]:
        """The headers of every request; given ones go before our own."""
        given = {name.title(): value.get_secret_value() for name, value in self.openai_default_headers.items()}
        return {"Authorization": f"Bearer {self.openai_api_key.get_secret_value()}", **given}

    def secrets(self) -> list[str]:
        """What must not be seen in any text."""
        return [value.get_secret_value() for value in (self.openai_api_key, *self.openai_default_headers.values())]
