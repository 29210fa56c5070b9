"""What a configuration implies for its workers, and the settings of a whole run."""

import pstats
from pathlib import Path
from typing import Any

import pytest

from gymq.cli.actions.collect import configured_window
from gymq.cli.shared.configuration import check_instances, read_config
from gymq.cli.shared.parameters import WorkerSources
from gymq.errors import UsageError

from .conftest import Command, write_environment

POLICY = """
policy_model:
  responses_api_models:
    vllm_model: {entrypoint: app.py, base_url: 'http://x/v1', api_key: k, model: m, uses_reasoning_parser: false}
"""
MINI = """
solver:
  responses_api_agents:
    mini_swe_agent:
      entrypoint: app.py
      model_server: {type: responses_api_models, name: policy_model}
      env: docker
      eval_timeout: 77
      cache_dir_template: /images/{instance_id}.sif
"""
SWE = """
solver:
  responses_api_agents:
    swe_agents:
      entrypoint: app.py
      agent_framework: openhands
      model_server: {type: responses_api_models, name: policy_model}
      swebench_tests_timeout: 88
"""


def read(folder: Path, text: str, *overrides: str) -> Any:
    (folder / "config.yaml").write_text(f"{text}\n{POLICY}\n")
    return read_config(WorkerSources(config=(folder / "config.yaml",)), overrides)


@pytest.mark.parametrize(("text", "overrides", "limit"), [(MINI, [], 77), (SWE, [], 88)])
def test_an_agent_that_verifies_by_itself_in_nemo_gym_gets_the_worker_that_does_it_here(
    here: Path, text: str, overrides: list[str], limit: int
) -> None:
    config = read(here, text, *overrides, "++policy_model.return_token_id_information=false")
    check_instances(config)
    verifier = config.instance("solver_verifier")
    assert (verifier.kind, verifier.implementation) == ("resources", "mini_swe_agent")
    assert verifier.options["eval_timeout"] == limit
    assert config.instance("solver").options["resources_server"]["name"] == verifier.name


def test_a_verifier_that_the_configuration_names_stays(here: Path) -> None:
    named = "      resources_server: {type: resources_servers, name: tests}\n"
    tests = "tests: {resources_servers: {mini_swe_agent: {entrypoint: app.py, domain: coding}}}"
    config = read(here, f"{MINI}{named}{tests}")
    assert [found.name for found in config.instances if found.kind == "resources"] == ["tests"]


def test_a_coding_agent_that_is_not_packaged_is_refused_with_those_that_are(here: Path) -> None:
    with pytest.raises(Exception, match=r"agent_framework swe_agent is not packaged here; set .*\(claude_code, codex"):
        check_instances(
            read(here, SWE.replace("openhands", "swe_agent"), "++policy_model.return_token_id_information=false")
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("token_id_capture: {enabled: true}", True),
        ("token_id_capture: true", True),
        ("token_id_capture: {enabled: false}", None),
        ("", None),
    ],
)
def test_capture_of_token_ids_asks_the_models_for_them(here: Path, text: str, expected: bool | None) -> None:
    model = read(here, text).instance("policy_model")
    assert model.options.get("return_token_id_information") is expected


def test_capture_of_token_ids_leaves_a_model_that_says_otherwise(here: Path) -> None:
    set_there = "++policy_model.return_token_id_information=false"
    model = read(here, "token_id_capture: true", set_there).instance("policy_model")
    assert model.options["return_token_id_information"] is False


def test_the_rollouts_in_flight_may_be_a_setting() -> None:
    assert configured_window({"num_samples_in_parallel": 8}) == 8
    assert configured_window({"num_samples_in_parallel": None}) is None
    with pytest.raises(UsageError, match="must be a whole number of at least 1, not 'many'"):
        configured_window({"num_samples_in_parallel": "many"})


@pytest.mark.nightly
def test_profiled_workers_leave_a_profile_of_their_own_code(here: Path, gymq: Command) -> None:
    write_environment(here)
    options = ["++profiling_enabled=true", "++profiling_results_dirpath=profiles", "++num_samples_in_parallel=2"]
    collected = gymq("collect", *options, "--resources", "letters.py", "--rows", "rows.jsonl", "-o", "x.jsonl")
    assert collected.status == 0, collected.err
    (profile,) = (here / "profiles").glob("letters-*.prof")
    functions = pstats.Stats(str(profile)).get_stats_profile().func_profiles
    assert "verify" in functions
