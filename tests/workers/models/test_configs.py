"""The configuration that comes with each model loads, and its worker takes the options."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymq.config import load
from gymq.execution.loading.registry import find_class

MODELS = Path(__file__).parents[3] / "workers" / "models"
ENDPOINT = [
    "++policy_base_url=https://model.example/v1",
    "++policy_api_key=a-key-for-tests",
    "++policy_model_name=a-model",
]


@pytest.mark.parametrize(
    "name",
    [
        "azure_openai_model",
        "genrm_model",
        "local_vllm_model",
        "openai_model",
        "replay_model",
        "simulated_model",
        "vllm_model",
    ],
)
def test_the_shipped_configuration_fits_the_worker(name: str) -> None:
    config = load([str(MODELS / name / "config.yaml")], ENDPOINT, env_yaml=None)
    (instance,) = config.instances
    assert instance.name == (name if name == "genrm_model" else "policy_model")
    assert (instance.kind, instance.implementation) == ("models", name)
    find_class("models", name)(dict(instance.options), name=instance.name)
