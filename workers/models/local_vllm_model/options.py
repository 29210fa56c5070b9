"""Options of `local_vllm_model`, checked before an engine is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import pydantic
from gymq.workers.models.vllm_model.options import VLLMOptions

_SIZES = ("data_parallel_size", "tensor_parallel_size", "pipeline_parallel_size")


class RayOptions(pydantic.BaseModel):
    """Where Ray places the engines: one actor for each rank of data parallelism."""

    model_config = pydantic.ConfigDict(extra="forbid")

    address: str = "auto"  # of a cluster to join; `auto`: this machine's, or a new one; `local`: a new one
    gpus_per_rank: pydantic.NonNegativeInt | None = None  # default: tensor times pipeline parallel size
    cpus_per_rank: pydantic.PositiveInt = 1
    resources: dict[str, float] = pydantic.Field({})  # Ray's own resources that an engine's node must have
    strategy: Literal["strict", "pack", "spread"] = "strict"  # all of a rank on one node, if possible, or apart
    placement_timeout_s: pydantic.PositiveFloat = 600.0
    init: dict[str, Any] = pydantic.Field({})  # more arguments of `ray.init`


class LocalVLLMOptions(VLLMOptions):
    """Options that the engine is started with, and how it is asked."""

    base_url: list[str] = pydantic.Field([])  # of running engines; then none is started here
    api_key: pydantic.SecretStr = pydantic.SecretStr("none")  # of the engines at `base_url`
    vllm_serve_kwargs: dict[str, Any] = pydantic.Field({})  # any argument of `vllm serve`, with _ for -
    vllm_serve_env_vars: dict[str, str] = pydantic.Field({})  # set before vLLM is imported
    hf_home: Path | None = None  # folder of downloaded models
    hf_token: pydantic.SecretStr | None = None
    debug: bool = False  # vLLM logs at level debug
    show_vllm_engine_stats: bool = False  # vLLM logs its throughput now and then
    ray: RayOptions | None = None  # None: the engine runs under this process
    ray_worker_py_executable: str | None = None  # Python of the engines that Ray starts

    @pydantic.field_validator("base_url", mode="before")
    @classmethod
    def _as_list(cls, urls: object) -> object:
        return [] if urls is None else [urls] if isinstance(urls, str) else urls

    @pydantic.field_validator("base_url")
    @classmethod
    def _check_urls(cls, urls: list[str]) -> list[str]:
        return super()._check_urls(urls) if urls else []

    @pydantic.field_validator("api_key", mode="before")
    @classmethod
    def _key_or_none(cls, key: object) -> object:
        return "none" if key is None else key

    @pydantic.field_validator("vllm_serve_kwargs", mode="before")
    @classmethod
    def _none_is_no_argument(cls, arguments: object) -> object:
        return {} if arguments is None else arguments

    @pydantic.field_validator("vllm_serve_env_vars", mode="before")
    @classmethod
    def _as_texts(cls, variables: object) -> object:
        if variables is None:
            return {}
        if not isinstance(variables, dict):
            return variables
        return {name: str(value) if isinstance(value, int | float) else value for name, value in variables.items()}

    @pydantic.model_validator(mode="after")
    def _check_engine(self) -> Self:
        for name in _SIZES:
            size = self.vllm_serve_kwargs.get(name, 1)
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"vllm_serve_kwargs.{name}: {size!r} is not a positive number")
        for name in ("model", "host", "port", "uds", "api_key"):
            if name in self.vllm_serve_kwargs:
                raise ValueError(
                    f"vllm_serve_kwargs.{name}: not here; {_INSTEAD.get(name, 'nothing listens anywhere')}"
                )
        if self.ray is not None and self.base_url:
            raise ValueError("ray: nothing is started when base_url names running engines")
        if self.ray is not None and self.vllm_serve_kwargs.get("enable_expert_parallel"):
            raise ValueError("vllm_serve_kwargs.enable_expert_parallel: engines that Ray places share no experts")
        return self

    @property
    def uses_gpus(self) -> bool:
        """Whether Ray is asked for GPUs."""
        return self.ray is not None and self.ray.gpus_per_rank != 0

    def size(self, name: str) -> int:
        """Return one of the sizes of parallelism, for example `tensor_parallel_size`."""
        return int(self.vllm_serve_kwargs.get(name, 1))


_INSTEAD = {"model": "it is the option model", "api_key": "requests come over NATS"}
