"""The settings of every model that asks an HTTP endpoint: URL, key, headers. Checked before any request.

Shared by openai_model, azure_openai_model, vllm_model and what builds on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated
from urllib.parse import urlsplit

import pydantic

# RFC 9110: a token, and visible characters with single blanks between them.
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SCHEME = re.compile(r"(Basic|Bearer|Token) ", re.IGNORECASE)
_HEADER_VALUE = re.compile(r"[!-~]+( [!-~]+)*")


def check_url(url: str) -> str:
    """The URL of an endpoint without a slash at its end; ValueError if it cannot be one."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("expected a URL such as https://api.openai.com/v1 or http://localhost:8000/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("the URL must not have a user, a query or a fragment; a key belongs in the option for it")
    return url.rstrip("/")


def _check_key(key: pydantic.SecretStr) -> pydantic.SecretStr:
    if not _HEADER_VALUE.fullmatch(key.get_secret_value()):
        raise ValueError("empty, or characters that cannot be sent; an endpoint without keys takes any text")
    return key


def _check_name(name: str) -> str:
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a header")
    return name


def _check_headers(headers: dict[str, pydantic.SecretStr]) -> dict[str, pydantic.SecretStr]:
    for name, value in headers.items():
        _check_name(name)
        if not _HEADER_VALUE.fullmatch(value.get_secret_value()):
            raise ValueError(f"the value of {name} is empty or has characters that cannot be sent")
    return headers


BaseUrl = Annotated[str, pydantic.AfterValidator(check_url)]
"""The URL of an endpoint, without a slash at its end."""
HeaderName = Annotated[str, pydantic.AfterValidator(_check_name)]
ApiKey = Annotated[pydantic.SecretStr, pydantic.AfterValidator(_check_key)]
Headers = Annotated[dict[str, pydantic.SecretStr], pydantic.AfterValidator(_check_headers)]
"""Headers of every request. Their values are not shown in any text, as keys are."""


def request_headers(key: pydantic.SecretStr, headers: Mapping[str, pydantic.SecretStr]) -> dict[str, str]:
    """Return the headers of every request: the key as bearer token; given ones go before our own."""
    given = {name.title(): value.get_secret_value() for name, value in headers.items()}
    return {"Authorization": f"Bearer {key.get_secret_value()}", **given}


def secrets_of(key: pydantic.SecretStr, headers: Mapping[str, pydantic.SecretStr]) -> Iterable[str]:
    """Return what must not be seen in any text: the key, the values of the headers, and a value without its scheme."""
    values = [value.get_secret_value() for value in (key, *headers.values())]
    return [*values, *(value.partition(" ")[2] for value in values if _SCHEME.match(value))]
