"""Configurations without a file: an environment with its agent, a model behind an endpoint, a simulated policy."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gymq.config.errors import ConfigError
from gymq.config.loader import Config, load
from gymq.config.overrides import Override

POLICY = "policy_model"
SIMULATED_MODEL = "simulated_model"
POLICY_KEYS = ("GYMQ_MODEL_API_KEY", "OPENAI_API_KEY")
"""Variables of the environment that hold the key for the endpoint of a policy, in the order they are looked at."""

_MODELS = "responses_api_models"


def instance(kind: str, implementation: str, **options: Any) -> dict[str, Any]:
    """Return the block of an instance: `kind` is the key of its servers, such as `responses_api_models`."""
    return {kind: {implementation: {"entrypoint": "worker.py", **options}}}


def environment(
    name: str, implementation: str, options: Mapping[str, Any] | None = None, *, agent: str | None = None
) -> dict[str, Any]:
    """Return an environment and, if `agent` is given, the agent that plays it with the policy."""
    found = {name: instance("resources_servers", implementation, domain="other", **(options or {}))}
    if agent is not None:
        references = {
            "resources_server": {"type": "resources_servers", "name": name},
            "model_server": {"type": _MODELS, "name": POLICY},
        }
        found[f"{name}_{agent}"] = instance("responses_api_agents", agent, **references)
    return found


def endpoint(url: str, model: str, key: str) -> dict[str, Any]:
    """Return a model behind an OpenAI-compatible endpoint."""
    return instance(_MODELS, "openai_model", openai_base_url=url, openai_api_key=key, openai_model=model)


def first_set(variables: Sequence[str]) -> str:
    """Return the first of these variables of the environment that is set, or `none`."""
    return next((value for name in variables if (value := os.environ.get(name))), "none")


def policy_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the top-level `policy_...` values for an endpoint, from the options of its model."""
    names = {"base_url": "openai_base_url", "api_key": "openai_api_key", "model_name": "openai_model"}
    return {f"policy_{name}": options[option] for name, option in names.items() if option in options}


def load_with_policy(
    files: Sequence[str],
    overrides: Sequence[str | Override] = (),
    *,
    initial: Mapping[str, Any],
    roots: Sequence[Path] = (),
) -> tuple[Config, dict[str, Any]]:
    """Load a configuration, and add a simulated policy where it lacks a policy.

    Returns:
        The configuration, and the added values: none, or the simulated policy.

    Raises:
        ConfigError: the configuration is invalid, also with the simulated policy.
    """
    try:
        return load(files, overrides, initial=initial, extra_roots=roots), {}
    except ConfigError as error:
        if error.unknown and POLICY not in error.unknown:
            raise
        simulated = {POLICY: instance(_MODELS, SIMULATED_MODEL)}
        try:  # an override of its options is an error without it
            return load(files, overrides, initial={**initial, **simulated}, extra_roots=roots), simulated
        except ConfigError:
            if error.unknown:
                raise
            raise error from None
