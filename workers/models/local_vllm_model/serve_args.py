"""From the options to the command line and the environment of `vllm serve`. Nothing here does I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gymq.workers.models.local_vllm_model.options import LocalVLLMOptions
from gymq.workers.models.vllm_model.sampler import FROM_CHECKPOINT, Sampler

from gymq.protocol.sampling import PROCESSED, RAW

PLUGIN = "gymq_engine_processes"
"""Name of the entry point that binds vLLM's processes to ours."""

OWNED = "GYMQ_OWNS_VLLM"
"""Environment variable: vLLM's processes were started by a worker and end with it."""

SOCKETS = "VLLM_RPC_BASE_PATH"
"""Environment variable: folder for the sockets between vLLM's processes."""

_NO_CONFIG = "vllm"  # as vLLM calls its own neutral defaults
_WEIGHTS_EXTENSION = "gymq.workers.models.local_vllm_model.weight_extension.TakesWeights"


def arguments(options: LocalVLLMOptions) -> list[str]:
    """Return the arguments as one would write them after `vllm serve`."""
    given = {name.replace("-", "_"): value for name, value in options.vllm_serve_kwargs.items()}
    given.setdefault("worker_extension_cls", _WEIGHTS_EXTENSION)
    if options.return_token_id_information:
        given.setdefault("logprobs_mode", f"{PROCESSED}_logprobs")
        given.setdefault("generation_config", _NO_CONFIG)
    given.setdefault("scheduling_policy", "priority")  # without urgent calls: first in, first out
    if not options.show_vllm_engine_stats:
        given.setdefault("disable_log_stats", True)
    given.setdefault("disable_uvicorn_access_log", True)
    if options.hf_home is not None:
        given.setdefault("download_dir", str(options.hf_home.resolve() / "hub"))
    if options.ray is not None:
        given.pop("data_parallel_size", None)  # each rank is a separate engine there
        if options.uses_gpus:
            given.setdefault("distributed_executor_backend", "ray")
    given["model"] = given["served_model_name"] = options.model
    return [part for name, value in given.items() for part in _argument(name, value)]


def sampler(options: LocalVLLMOptions) -> Sampler:
    """Return how an engine with these arguments samples."""
    given = {name.replace("-", "_"): value for name, value in options.vllm_serve_kwargs.items()}
    mode = str(given.get("logprobs_mode", f"{PROCESSED}_logprobs"))
    log_probs = {f"{PROCESSED}_logprobs": PROCESSED, f"{RAW}_logprobs": RAW}.get(mode)
    own_defaults = given.get("generation_config", _NO_CONFIG) == _NO_CONFIG
    return Sampler(log_probs, {}, FROM_CHECKPOINT if own_defaults else {})


def _argument(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is None:
        return []
    if value is True:
        return [flag]
    if value is False:
        return ["--no-" + name.replace("_", "-")]
    if isinstance(value, Mapping):
        return [flag, json.dumps(value)]
    if isinstance(value, list):
        return [flag, *map(str, value)]
    return [flag, str(value)]


def environment(options: LocalVLLMOptions, present: Mapping[str, str], sockets: str) -> dict[str, str]:
    """The variables to set before vLLM is imported.

    Args:
        present: the environment so far. Variables that the configuration does not set stay unchanged.
        sockets: folder for the sockets between vLLM's processes, which it does not remove.
    """
    defaults = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        # On GPUs vLLM forks, unless it is its own program. A worker has threads and connections, and a forked process
        # loads no plugins again, so it would outlive the worker.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
    wanted = {name: value for name, value in defaults.items() if name not in present}
    wanted[SOCKETS] = sockets  # not one inherited from a worker, which may be gone
    if options.debug:
        wanted["VLLM_LOGGING_LEVEL"] = "DEBUG"
    if options.hf_home is not None:
        wanted["HF_HOME"] = str(options.hf_home.resolve())
    if options.hf_token is not None:
        wanted["HF_TOKEN"] = options.hf_token.get_secret_value()
    wanted |= options.vllm_serve_env_vars
    wanted[OWNED] = "1"
    plugins = wanted.get("VLLM_PLUGINS", present.get("VLLM_PLUGINS"))
    if plugins is not None and PLUGIN not in plugins.split(","):
        wanted["VLLM_PLUGINS"] = f"{plugins},{PLUGIN}" if plugins else PLUGIN
    return wanted
