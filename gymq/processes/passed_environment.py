"""The environment variables that are passed to a worker process: an allowlist for each kind.

The environment of `gymq up` belongs to a person and may contain keys. A verifier that runs code of a model must not see
them. Secrets that a configuration refers to (`${oc.env:NAME}`) are resolved before and travel with the options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gymq.redaction import names_secret

_NAMES = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "NO_COLOR", "LANG", "LANGUAGE", "TZ"),
        *("TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
        *("GYMQ_NATS_CA", "GYMQ_NATS_CERT", "GYMQ_NATS_KEY"),
        *("NLTK_DATA", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_ENDPOINT"),
        *("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "ELAN_HOME"),
        *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"),
        *("APPTAINER_CACHEDIR", "APPTAINER_TMPDIR", "SINGULARITY_CACHEDIR", "SINGULARITY_TMPDIR"),
    )
)
_BEGINNINGS: tuple[str, ...] = (
    *("LC_", "PYTHON", "OMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "MALLOC_", "XDG_"),
    *("OTEL_", "RAY_", "COVERAGE_", "COV_CORE_"),
)
# Engines run in model workers: settings of their hardware and libraries, and sources of weights.
_NAMES_OF_MODELS = frozenset(("LIBRARY_PATH", "CPATH", "CC", "CXX", "HUGGING_FACE_HUB_TOKEN"))
_BEGINNINGS_OF_MODELS = (
    *("CUDA_", "CUDNN_", "NVIDIA_", "NCCL_", "GLOO_", "UCX_", "ROCM_", "ROCR_", "RCCL_", "HIP_", "HSA_", "AMD_"),
    *("GPU_", "VLLM_", "LMCACHE_", "FLASHINFER_", "HF_", "TRANSFORMERS_", "TOKENIZERS_", "SAFETENSORS_"),
    *("TORCH", "PYTORCH_", "TRITON_", "TPU_", "XLA_", "JAX_"),
)
# Agents install coding agents that are named, and then need what reaches the registries of packages from here. Their
# programs get none of it. npm reads its settings in any case.
_BEGINNINGS_OF_INSTALLERS = ("npm_config_", "pip_", "uv_")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Passwords of the bus: a process reads its own from a pipe.
_NEVER = frozenset({"GYMQ_AUTH", "GYMQ_NATS"})


def check_name(name: str) -> str:
    """Return the name of a variable that an instance asks for, unchanged.

    Raises:
        ValueError: the name is not valid, or the variable is withheld from every worker.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of an environment variable")
    if name in _NEVER:
        raise ValueError(f"{name} is not passed to workers, which get their own password; leave it out")
    return name


def passed(role: str, present: Mapping[str, str], asked: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment of a worker process.

    Args:
        role: the role as which it connects.
        present: the environment to take from.
        asked: names that its instances ask for.

    Raises:
        LookupError: a variable that an instance asks for is not set; the sentence names it.
    """
    names, beginnings = _NAMES, _BEGINNINGS
    if role == "model":
        names, beginnings = names | _NAMES_OF_MODELS, beginnings + _BEGINNINGS_OF_MODELS
    given = {name: value for name, value in present.items() if name in names or name.startswith(beginnings)}
    if role in ("agent", "cell"):
        given |= _installer_settings(present)
    for name in asked:
        if name not in present:
            raise LookupError(f"pass_env names {name}, which is not set here; set it, or leave it out")
        given[name] = present[name]
    return given


def _installer_settings(present: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in present.items()
        if name.lower().startswith(_BEGINNINGS_OF_INSTALLERS) and not names_secret(name)
    }
