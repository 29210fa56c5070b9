"""A directory with configuration files, and a loader that starts from it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gymq.config import Config, load

RESOURCES = """
capitals:
  resources_servers:
    mcqa:
      entrypoint: app.py
      domain: knowledge
      depth: 3
"""
AGENT = """
solver:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      max_steps: 4
      resources_server: {type: resources_servers, name: capitals}
      model_server: {type: responses_api_models, name: policy_model}
"""
MODEL = """
policy_model:
  responses_api_models:
    vllm_model:
      entrypoint: app.py
      base_url: ${policy_base_url}
      api_key: ${policy_api_key}
"""
ENV = """
policy_base_url: http://up/v1
policy_api_key: sek
"""

Loader = Callable[..., Config]


@pytest.fixture
def files() -> dict[str, str]:
    """Three files that make a complete configuration together with ENV."""
    return {"resources.yaml": RESOURCES, "agent.yaml": AGENT, "model.yaml": MODEL}


@pytest.fixture
def load_files(tmp_path: Path) -> Loader:
    """Write files below a directory and load from there; without `paths`, all files in the order given."""

    def write_and_load(
        files: Mapping[str, str],
        *overrides: str,
        paths: list[str] | None = None,
        env: str | None = None,
        **options: Any,
    ) -> Config:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if env is not None:
            (tmp_path / "env.yaml").write_text(env)
            options.setdefault("env_yaml", "env.yaml")
        options.setdefault("env_yaml", None)
        return load(list(files) if paths is None else paths, overrides, root=tmp_path, **options)

    return write_and_load
