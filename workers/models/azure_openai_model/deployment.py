"""A deployment of Azure OpenAI, asked with the vendor's client, which knows Azure's paths and ways to sign in.

Tries, limits and errors are those of every other endpoint: the client makes one try at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymq.workers.models.azure_openai_model.options import AzureOpenAIOptions
from gymq.workers.models.openai_model.endpoint import Endpoint, Head
from gymq.workers.models.openai_model.retry import CONNECT_TIMEOUT_S

import gymq

try:
    import openai
except ImportError:
    openai = None  # type: ignore[assignment]

_BEFORE_ANYTHING_WAS_SENT = frozenset({"ConnectError", "ConnectTimeout"})  # of the client's own HTTP library


class Deployment(Endpoint):
    """Posts chat requests to the deployment that their `model` names."""

    def __init__(self, options: AzureOpenAIOptions) -> None:
        """
        Raises:
            OptionsError: the vendor's client is not installed.
        """
        if openai is None:
            raise gymq.OptionsError("azure_openai_model needs the vendor's client: pip install 'gymq[azure]'")
        super().__init__(
            options.openai_base_url,
            headers=options.headers(),
            secrets=options.secrets(),
            max_concurrent_requests=options.request_limit,
        )
        self._options = options

    async def start(self) -> None:
        options = self._options
        self._client = openai.AsyncAzureOpenAI(
            azure_endpoint=self.base_url,
            api_key=options.openai_api_key.get_secret_value(),
            api_version=options.api_version,
            default_query=options.default_query,
            default_headers={name: value.get_secret_value() for name, value in options.openai_default_headers.items()},
            max_retries=0,
            timeout=openai.Timeout(None, connect=CONNECT_TIMEOUT_S),
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
        )

    async def stop(self) -> None:
        await self._client.close()

    async def models(self) -> dict[str, int | None]:
        return {}  # deployments have their own names

    async def _exchange(
        self, path: str, asked: Mapping[str, Any], _headers: Mapping[str, str] | None
    ) -> dict[str, Any]:
        url = f"{self.base_url}/openai/deployments/{asked['model']}{path}"
        members = dict(asked)
        model, messages = members.pop("model"), members.pop("messages")
        completions = self._client.chat.completions.with_raw_response
        try:
            # Other fields pass through the client unread, so it need not know every field.
            answer = await completions.create(model=model, messages=messages, extra_body=members)
        except openai.APIStatusError as error:
            response = error.response
            head = Head(response.status_code, response.reason_phrase, response.headers)
            raise self._error(url, head, response.content) from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            if type(cause).__name__ in _BEFORE_ANYTHING_WAS_SENT:
                raise self._unreachable(url, cause) from None
            raise self._broken(url, cause) from None
        return self._parsed(url, Head(answer.status_code, "", answer.headers), answer.content)
