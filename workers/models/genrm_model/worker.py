"""Generative reward models that compare two answers: running engines at `base_url`, or one started here."""

from __future__ import annotations

from typing import Any, Self

import pydantic
from gymq.workers.models.local_vllm_model.options import LocalVLLMOptions
from gymq.workers.models.local_vllm_model.worker import LocalVLLMModel

PRINCIPLE = "principle"
ANSWERS = ("response_1", "response_2")


class GenRMOptions(LocalVLLMOptions):
    """Those of `local_vllm_model`."""

    supports_principle_role: bool = True  # the chat template has a role for the criterion

    @pydantic.model_validator(mode="after")
    def _check_dialect(self) -> Self:
        for name in ("is_responses_native", "use_completions_api"):
            if getattr(self, name):
                raise ValueError(f"{name}: answers are compared in dedicated roles, which only the chat API has")
        return self


class GenRMModel(LocalVLLMModel):
    """Shows the model a conversation and two answers, in the roles that its chat template knows."""

    Options: type[GenRMOptions] = GenRMOptions

    def body(self, chat: dict[str, Any], audio: list[str]) -> dict[str, Any]:
        body = super().body(chat, audio)
        return comparison_body(body, supports_principle_role=self.options.supports_principle_role)


def comparison_body(body: dict[str, Any], *, supports_principle_role: bool) -> dict[str, Any]:
    """Return a chat body whose `metadata` has become messages: a criterion, then the answers, each in its own role.

    Args:
        body: a prepared chat body; it is not changed.
        supports_principle_role: whether the model's chat template knows the role of the criterion.
    """
    metadata = body.get("metadata") or {}
    shown = [name for name in ANSWERS if metadata.get(name) is not None]
    if supports_principle_role and metadata.get(PRINCIPLE):
        shown.insert(0, PRINCIPLE)
    messages = [*body["messages"], *({"role": name, "content": metadata[name]} for name in shown)]
    return {**{name: value for name, value in body.items() if name != "metadata"}, "messages": messages}
