"""Every configuration of NeMo Gym for workers that gymq has loads, or is refused for a reason listed here."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymq.cli.shared.configuration import check_instances, read_config
from gymq.cli.shared.parameters import WorkerSources
from gymq.config import Config, ConfigError
from gymq.errors import GymqError
from gymq.execution.loading.registry import WorkerNotFound
from gymq.protocol.instances import KIND_OF
from gymq.workers import SHIPPED
from tests.support.compatibility import record

from .nemo_gym_package import CURRENT, FIRST, fetched

FOLDERS = ("resources_servers", "responses_api_agents", "responses_api_models", "benchmarks", "environments")

REFUSED = {
    # Aviary's own environments of notebooks, in containers of their own.
    "bixbench_aviary.yaml": "entrypoint notebook_app.py: its environment needs containers",
    "bbh_bundled.yaml": "entrypoint hypotest_app.py: its environment needs containers",
    # Refused by NeMo Gym too, in 0.2.1.
    "over_refusal_detection.yaml": "a train data set needs a license",
    "reasoning_gym.yaml": "found duplicate key license",
    # Python classes of a checkout of NeMo Gym, or agents that it clones.
    "harbor_agent.yaml": "terminus_2_nemo_gym:Terminus2NemoGym is not imported here; set `harness`",
    "harbor_agent_daytona.yaml": "terminus_2_nemo_gym:Terminus2NemoGym is not imported here; set `harness`",
    "swebench_swe_agent.yaml": "agent_framework swe_agent is not packaged here",
}
"""What is refused, by file, and the reason."""

URL = "http://127.0.0.1:1/v1"
GIVEN = {
    "policy_base_url": URL,
    "policy_api_key": "k",
    "policy_model_name": "m",
    "google_search.resources_servers.google_search.google_api_key": "k",
    "google_search.resources_servers.google_search.google_cx": "k",
}
"""Values that NeMo Gym's documentation has in env.yaml."""

PLACEHOLDERS = {
    "bbh_remote.yaml": {"bbh_aviary_resources_server.resources_servers.aviary": {"server_url": URL, "api_key": "k"}},
    "safety_judge_model.yaml": {"safety_judge_model.responses_api_models.vllm_model": {"base_url": URL}},
}
"""By file: values in the place of texts such as `- insert server url`."""

WITH_A_PROGRAM = {
    "harbor_agent.yaml": "harbor_agent.responses_api_agents.harbor_agent",
    "swebench_swe_agent.yaml": "swe_agents.responses_api_agents.swe_agents",
}
"""Refused, but loaded with a `harness` there."""

POLICY = """
policy_model:
  responses_api_models:
    openai_model:
      {entrypoint: app.py, openai_base_url: 'http://127.0.0.1:1/v1', openai_api_key: k, openai_model: m}
"""
RESOURCES = "some_resources: {resources_servers: {mcqa: {entrypoint: app.py, domain: math}}}\n"


def configurations(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.yaml")):
        name = path.relative_to(folder)
        if name.parts[0] in FOLDERS and (path.parent.name == "configs" or path.name == "config.yaml"):
            yield str(name)


def implementations(tree: Any) -> set[tuple[str, str]]:
    blocks = [block for block in tree.values() if isinstance(block, dict)] if isinstance(tree, dict) else []
    found: set[tuple[str, str]] = set()
    for block in blocks:
        for kind in KIND_OF.keys() & block.keys():
            for name, options in block[kind].items():
                if isinstance(options, dict) and "entrypoint" in options:
                    found.add((KIND_OF[kind], name))
    return found


def is_ours(kind: str, name: str) -> bool:
    return (SHIPPED / "workers" / kind / name / "worker.py").is_file()


def completed(file: str, extra: Path, **more: str) -> Config:
    """Load a file with all the values that it leaves to its user."""
    given = {name: value for name, value in GIVEN.items() if name.startswith("policy") or "google_search" in file}
    given |= more
    for block, values in PLACEHOLDERS.get(Path(file).name, {}).items():
        given |= {f"{block}.{name}": value for name, value in values.items()}
    files = [Path(file), *([] if "policy_model:\n" in Path(file).read_text() else [extra / "policy.yaml"])]
    for _ in range(20):
        try:
            found = read_config(
                WorkerSources(config=tuple(files)), [f"++{key}={value}" for key, value in given.items()]
            )
            check_instances(found)
            return found
        except ConfigError as error:
            if error.unknown:
                if error.unknown == {"some_resources"} or not set(error.unknown) - given.keys():
                    raise
                for name in error.unknown:
                    (extra / f"{name}.yaml").write_text(POLICY.replace("policy_model:", f"{name}:"))
                    files.append(extra / f"{name}.yaml")
                continue
            unset = re.search(r" unset \(\?\?\?\): (.*?); give", str(error))
            unknown = re.findall(r"there is no ([\w.]+)", str(error))
            names = [one.partition(" ")[0] for one in unset[1].split(", ")] if unset else unknown
            if not names or given.keys() >= set(names):
                raise
            for name in names:
                reference = "some_resources" if name.endswith("resources_server.name") else "policy_model"
                given[name] = reference if name.endswith(".name") else "http://127.0.0.1:1/v1"
    raise AssertionError(f"{file} cannot be completed")


@pytest.mark.parametrize(("version", "at_least"), [pytest.param(FIRST, 61, marks=pytest.mark.nightly), (CURRENT, 95)])
def test_every_configuration_for_our_workers_loads(
    version: str, at_least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fetched(version)
    monkeypatch.chdir(folder)
    (tmp_path / "policy.yaml").write_text(POLICY + RESOURCES)
    loaded, refused, lacking = [], {}, []
    for file in configurations(folder):
        described = implementations(yaml.safe_load(Path(file).read_text()))
        if not described:
            continue  # prompts, a list of other files, or the settings of another program
        if not all(is_ours(*found) for found in described):
            lacking.append(file)
            continue
        for variable in re.findall(
            r"oc\.env:(\w+)", "".join(path.read_text() for path in Path(file).parent.glob("*.yaml"))
        ):
            monkeypatch.setenv(variable, "1" if "PORT" in variable else GIVEN["policy_base_url"])
        try:
            completed(file, tmp_path)
            loaded.append(file)
        except WorkerNotFound:
            lacking.append(file)
        except GymqError as error:
            refused[file] = str(error)
    unexpected = {file: text for file, text in refused.items() if REFUSED.get(Path(file).name, "?") not in text}
    assert unexpected == {}
    for file in refused:
        if block := WITH_A_PROGRAM.get(Path(file).name):
            completed(file, tmp_path, **{f"{block}.harness": "pi"})
    assert len(loaded) >= at_least, f"{len(loaded)} of {len(loaded) + len(refused)}; {len(lacking)} lack a worker"
    named = ", ".join(f"`{name}`" for name in sorted({Path(file).name for file in refused}))
    result = f"{len(loaded)} of {len(loaded) + len(refused)} load; refused with a reason: {named}"
    record("NeMo Gym: configurations for workers that gymq has", version, "its package", result)
