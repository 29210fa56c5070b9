"""Models of any provider that LiteLLM knows, asked through that library."""

from __future__ import annotations

from gymq.workers.models.litellm_model.options import LiteLLMOptions
from gymq.workers.models.openai_model.endpoint import Endpoint
from gymq.workers.models.openai_model.worker import OpenAIModel


class LiteLLMModel(OpenAIModel):
    """Sends each request to one model of one provider and checks what comes back."""

    Options: type[LiteLLMOptions] = LiteLLMOptions

    def make_endpoint(self) -> Endpoint:
        from gymq.workers.models.litellm_model.provider import Provider  # with the library, which is large

        return Provider(self.options)
