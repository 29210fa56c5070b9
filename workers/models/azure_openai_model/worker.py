"""Deployments of Azure OpenAI, asked in the chat dialect with the vendor's client."""

from __future__ import annotations

from gymq.workers.models.azure_openai_model.options import AzureOpenAIOptions
from gymq.workers.models.openai_model.endpoint import Endpoint
from gymq.workers.models.openai_model.worker import OpenAIModel


class AzureOpenAIModel(OpenAIModel):
    """Sends each request to one deployment and checks what comes back."""

    Options: type[AzureOpenAIOptions] = AzureOpenAIOptions

    def make_endpoint(self) -> Endpoint:
        from gymq.workers.models.azure_openai_model.deployment import (
            Deployment,  # with the vendor's client, which is large
        )

        return Deployment(self.options)
