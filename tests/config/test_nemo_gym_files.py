"""What configurations written for NeMo Gym contain that gymq has no use for, or under another name."""

import logging
from pathlib import Path

import pytest

from gymq.authoring import OptionsError
from gymq.cli.shared.configuration import check_instances
from gymq.config import ConfigError, load
from gymq.config.unknown import check_keys

BLOCK = "exam: {{resources_servers: {{{worker}: {{entrypoint: {entrypoint}, domain: math, {option}}}}}}}"


@pytest.mark.parametrize("entrypoint", ["app.py", "lenient_app.py"])
def test_an_option_of_nemo_gym_that_a_worker_does_not_have_is_named_and_dropped(
    load_files, capsys: pytest.CaptureFixture[str], entrypoint: str
) -> None:
    text = BLOCK.format(worker="mcqa", entrypoint=entrypoint, option="gradin_mode: regex, debug_logging: true")
    check_instances(load_files({"a.yaml": text}))
    assert capsys.readouterr().err.splitlines() == [
        "gymq: exam: debug_logging has no meaning here and is ignored",
        "gymq: exam: gradin_mode has no meaning here and is ignored; did you mean grading_mode?",
    ]


@pytest.mark.parametrize("entrypoint", ["worker.py", "app.py.txt", "a/app.py"])
def test_of_other_files_an_unknown_option_is_a_mistake(load_files, entrypoint: str) -> None:
    text = BLOCK.format(worker="mcqa", entrypoint=entrypoint, option="debug_logging: true")
    with pytest.raises(OptionsError, match="no option debug_logging"):
        check_instances(load_files({"a.yaml": text}))


def test_a_wrong_value_of_a_known_option_is_a_mistake_in_all_files(load_files) -> None:
    text = BLOCK.format(worker="mcqa", entrypoint="app.py", option="grading_mode: 3")
    with pytest.raises(OptionsError, match="grading_mode"):
        check_instances(load_files({"a.yaml": text}))


def test_the_entrypoint_of_aviary_selects_its_environment(load_files) -> None:
    check_instances(load_files({"a.yaml": BLOCK.format(worker="aviary", entrypoint="gsm8k_app.py", option="")}))
    text = BLOCK.format(worker="aviary", entrypoint="notebook_app.py", option="")
    with pytest.raises(OptionsError, match=r"entrypoint notebook_app\.py: its environment needs containers"):
        check_instances(load_files({"a.yaml": text}))


def test_a_mapping_of_a_file_that_nothing_refers_to_is_named(load_files) -> None:
    prompts = load_files({"prompts.yaml": "\nanswer_check: {user: Is it right?}"})
    assert check_keys(prompts) == ["prompts.yaml:2: nothing refers to answer_check, so it is ignored"]


def test_a_file_of_a_checkout_that_is_not_there_is_the_shipped_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = ["resources_servers/mcqa/configs/mcqa.yaml", "responses_api_models/openai_model/configs/openai_model.yaml"]
    values = {"policy_base_url": "http://127.0.0.1:1/v1", "policy_api_key": "k", "policy_model_name": "m"}
    with caplog.at_level(logging.WARNING):
        found = load(names, root=tmp_path, env_yaml=None, initial=values)
    assert [(one.name, one.implementation) for one in found.instances] == [
        ("mcqa", "mcqa"),
        ("mcqa_simple_agent", "simple_agent"),
        ("policy_model", "openai_model"),
    ]
    assert f"config file {names[0]} does not exist here, so workers/resources/mcqa/config.yaml is used" in caplog.text


def test_the_model_for_training_returns_token_ids(tmp_path: Path) -> None:
    values = {"policy_base_url": "http://127.0.0.1:1/v1", "policy_api_key": "k", "policy_model_name": "m"}
    name = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
    found = load([name], root=tmp_path, env_yaml=None, initial=values)
    assert found.instance("policy_model").options["return_token_id_information"] is True


def test_a_file_that_is_there_is_not_replaced(load_files) -> None:
    name = "resources_servers/mcqa/configs/mcqa.yaml"
    assert load_files({name: "x: 1"}).tree["x"] == 1


@pytest.mark.parametrize(
    "name", ["resources_servers/none_such/configs/a.yaml", "resources_servers/../configs/mcqa.yaml"]
)
def test_what_no_shipped_worker_replaces_does_not_exist(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load([name], root=tmp_path, env_yaml=None)
