"""Options of `vllm_model`, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self

import pydantic
from gymq.workers.models.openai_model.connection import ApiKey, HeaderName, Headers, request_headers, secrets_of
from gymq.workers.models.openai_model.endpoint_model import EndpointOptions
from gymq.workers.models.vllm_model.engine_form import FORMS, EngineForm
from gymq.workers.models.vllm_model.engine_sources import check_source


class VLLMOptions(EndpointOptions):
    """Where the engines are and how they want to be asked. Keys and header values are not shown in any text."""

    base_url: list[str]  # URLs that end in /v1 as a rule; dns+URL: each address of its host; file:PATH: one a line
    api_key: ApiKey
    model: str  # takes the place of the request's `model`
    return_token_id_information: bool  # token ids and log probs on the last output item
    uses_reasoning_parser: bool  # the engine separates reasoning from the text
    engine: Literal["vllm", "sglang", "dynamo", "tensorrt_llm"] = "vllm"
    request_prompt_and_generation_token_ids: bool = False  # ask the engine for ids in its reply
    replace_developer_role_with_system: bool = False
    sequential_reasoning_allowed: bool = True  # go on after a turn that is nothing but reasoning
    uses_interleaved_reasoning: bool = True  # keep the reasoning of earlier turns
    preserve_reasoning_in_assistant_content: bool = False  # keep it as think tags in the text
    is_responses_native: bool = False  # the engine answers Responses requests itself
    chat_template_kwargs: dict[str, Any] = pydantic.Field({})
    extra_body: dict[str, Any] = pydantic.Field({})  # fields of the body that a request does not set itself
    sampling_overrides: dict[str, Any] = pydantic.Field({})  # fields of the body that nothing else changes
    default_headers: Headers = pydantic.Field({})
    session_affinity_header: HeaderName | None = "X-Session-ID"  # names the session, for routers in front of engines
    audio_root: Path | None = None  # folder of the audio files that requests name
    use_completions_api: bool = False  # for base models
    render_chat_template: bool = False  # ask it for what a chat template makes of the messages
    use_generate_api: bool = False  # SGLang's own
    reasoning_parser: str | None = None  # of the engine, with use_generate_api
    tool_call_parser: str | None = None
    tokenizer: str | None = None  # whose template makes the tokens that are sent; None: the engine's

    @pydantic.field_validator("base_url", mode="before")
    @classmethod
    def _as_list(cls, urls: object) -> object:
        return [urls] if isinstance(urls, str) else urls

    @pydantic.field_validator(
        "chat_template_kwargs", "extra_body", "sampling_overrides", "default_headers", mode="before"
    )
    @classmethod
    def _none_is_empty(cls, members: object) -> object:
        return {} if members is None else members

    @pydantic.field_validator("base_url")
    @classmethod
    def _check_urls(cls, urls: list[str]) -> list[str]:
        if not urls:
            raise ValueError("empty; expected a URL such as http://localhost:8000/v1, or several")
        return [check_source(url) for url in urls]

    @pydantic.model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.render_chat_template and not self.use_completions_api:
            raise ValueError("render_chat_template: only with use_completions_api; otherwise the engine renders")
        if self.tokenizer is not None and self.use_completions_api and not self.render_chat_template:
            raise ValueError("tokenizer: with use_completions_api only with render_chat_template")
        self._check_generate()
        decodes = self.use_completions_api and self.tokenizer is not None
        if self.engine == "tensorrt_llm" and self.return_token_id_information and not decodes:
            raise ValueError("engine: tensorrt_llm gives token ids only with use_completions_api and a tokenizer")
        if self.is_responses_native:
            excluded = {
                "return_token_id_information": self.return_token_id_information,
                "replace_developer_role_with_system": self.replace_developer_role_with_system,
                "sequential_reasoning_allowed: false": not self.sequential_reasoning_allowed,
                "use_completions_api": self.use_completions_api,
                "use_generate_api": self.use_generate_api,
                "tokenizer": self.tokenizer is not None,
            }
            for name, is_set in excluded.items():
                if is_set:
                    raise ValueError(f"is_responses_native passes requests through and cannot go with {name}")
        return self

    def _check_generate(self) -> None:
        if self.use_generate_api:
            if self.engine not in ("sglang", "dynamo"):
                raise ValueError("use_generate_api: only with engine: sglang, or dynamo, which passes it on")
            if self.use_completions_api or self.tokenizer is None:
                raise ValueError("use_generate_api: needs a tokenizer, and cannot go with use_completions_api")
            if self.uses_reasoning_parser and self.reasoning_parser is None:
                raise ValueError("use_generate_api: with uses_reasoning_parser it needs the name of reasoning_parser")
        elif self.reasoning_parser is not None or self.tool_call_parser is not None:
            raise ValueError("reasoning_parser, tool_call_parser: only with use_generate_api; else the engine has them")

    @property
    def form(self) -> EngineForm:
        """How the engine is asked for tokens."""
        return FORMS[self.engine]

    def headers(self) -> dict[str, str]:
        return request_headers(self.api_key, self.default_headers)

    def secrets(self) -> Iterable[str]:
        return secrets_of(self.api_key, self.default_headers)
