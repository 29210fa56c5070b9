"""Files, env.yaml, a program's values and the command line as one resolved configuration with addresses."""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from gymq.config import Config, ConfigError, load

from ..comparison import Mismatch
from ..refused import Refused

addresses = pytest.importorskip("gymq.ext.nemo_gym.addresses")

ALLOCATED = "<allocated>"
NOT_COMPARED = {
    "allow_openai_version_skew",
    "cache_dir",
    "config_paths",
    "disallowed_ports",
    "dry_run",
    "head_server_deps",
    "model_endpoint_readiness_timeout_seconds",
    "python_version",
    "results_dir",
    "skip_venv_if_present",
    "use_absolute_ip",
    "uv_cache_dir",
    "uv_venv_dir",
}
"""Members of a resolved configuration that describe an installation, or how the configuration was put together."""


async def run(case_input: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            config = _load(case_input, Path(folder))
            tree = addresses.add_addresses(config.tree, is_free=lambda _port: True)
        except ConfigError as error:
            raise Refused(str(error)) from None
    servers = [[instance.name, instance.server_type] for instance in config.instances]
    return {"resolved": _with_allocated_ports_marked(tree, config), "servers": servers}


def normalise(answer: dict[str, Any]) -> dict[str, Any]:
    resolved = {key: value for key, value in answer["resolved"].items() if key not in NOT_COMPARED}
    return {**answer, "resolved": resolved}


def _load(case_input: dict[str, Any], folder: Path) -> Config:
    for name, text in case_input["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    env_yaml = None
    if case_input.get("env_yaml") is not None:
        env_yaml = folder / "env.yaml"
        env_yaml.write_text(case_input["env_yaml"], encoding="utf-8")
    return load([], case_input["cli"], root=folder, env_yaml=env_yaml, initial=case_input.get("initial"))


def _with_allocated_ports_marked(tree: dict[str, Any], config: Config) -> dict[str, Any]:
    """Write `<allocated>` for the ports that were not configured, after checking that they can be used."""
    head = tree["head_server"]
    taken = [head.get("port")] if isinstance(head, dict) else []
    taken += [instance.options.get("port") for instance in config.instances]
    taken += tree.get("disallowed_ports") or []
    allocated = []
    for instance in config.instances:
        if not instance.options.get("port"):
            options = tree[instance.name][instance.server_type][instance.implementation]
            allocated.append(options["port"])
            options["port"] = ALLOCATED
    in_range = all(tree["port_range_low"] <= port <= tree["port_range_high"] for port in allocated)
    if not in_range or len(set(allocated)) != len(allocated) or any(port in taken for port in allocated):
        raise Mismatch([f"the allocated ports {allocated} are not distinct free ports within the range"])
    return tree
