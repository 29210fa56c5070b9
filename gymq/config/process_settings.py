"""Top-level settings that hold for all processes of the workers: which these are, and environment variables of them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from gymq.config.errors import ConfigError
from gymq.defaults import Layout
from gymq.protocol.instances import PROFILES_VARIABLE

RAY_ADDRESS = "ray_head_node_address"
PROFILING = "profiling_enabled"
PROFILES = "profiling_results_dirpath"
OBSERVABILITY = "observability_enabled"
TOKEN_ID_CAPTURE = "token_id_capture"
LAYOUT = "layout"

SETTINGS = frozenset({RAY_ADDRESS, PROFILING, PROFILES, OBSERVABILITY, TOKEN_ID_CAPTURE, LAYOUT})
"""Settings that are in effect here; none of them is an instance."""

HAVE_TOKENS = "results have their tokens here, not receipts for them; set token_capture.enabled to false"
"""Why tokens that NeMo RL's engines would put into its TransferQueue are refused, and what to set."""

_DEFAULT_PROFILES = ".gymq/profiles"
_TRACES = "OTEL_TRACES_EXPORTER"


def process_variables(tree: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables of all worker processes of a configuration.

    Raises:
        ConfigError: a setting has a value of another type.
    """
    check_settings(tree)
    variables = {}
    if tree.get(RAY_ADDRESS):
        variables["RAY_ADDRESS"] = tree[RAY_ADDRESS]
    if tree.get(PROFILING):
        variables[PROFILES_VARIABLE] = str(Path(tree.get(PROFILES) or _DEFAULT_PROFILES).expanduser().absolute())
    if tree.get(OBSERVABILITY) and not os.environ.get(_TRACES):
        variables[_TRACES] = "otlp"
    return variables


def layout(tree: Mapping[str, Any]) -> Layout:
    """Return which workers of a configuration share a process.

    Raises:
        ConfigError: the setting has another value.
    """
    found: Layout | None = tree.get(LAYOUT)
    if found not in (None, *get_args(Layout)):
        raise ConfigError(f"{LAYOUT} must be {' or '.join(get_args(Layout))}, not {found!r}")
    return found or "kinds"


def check_settings(tree: Mapping[str, Any]) -> None:
    """Check the types of the settings.

    Raises:
        ConfigError: one has a value of another type.
    """
    for name in (RAY_ADDRESS, PROFILES):
        if tree.get(name) is not None and not isinstance(tree[name], str):
            raise ConfigError(f"{name} must be text, not {tree[name]!r}")
    for name in (PROFILING, OBSERVABILITY):
        if tree.get(name) is not None and not isinstance(tree[name], bool):
            raise ConfigError(f"{name} must be true or false, not {tree[name]!r}")
    is_enabled(tree.get(TOKEN_ID_CAPTURE))
    layout(tree)


def is_enabled(capture: Any) -> bool:
    """Return whether a value of `token_id_capture`, a truth value or a mapping with `enabled`, asks for token ids.

    Raises:
        ConfigError: it is neither, or asks for `external_staging`.
    """
    options = capture if isinstance(capture, dict) else {"enabled": capture}
    enabled = options.get("enabled")
    if enabled is not None and not isinstance(enabled, bool):
        raise ConfigError(f"{TOKEN_ID_CAPTURE} must be true, false or a mapping with `enabled`, not {capture!r}")
    if enabled and options.get("external_staging"):
        raise ConfigError(f"{TOKEN_ID_CAPTURE}.external_staging is not supported: {HAVE_TOKENS}")
    return bool(enabled)
