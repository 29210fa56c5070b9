"""Top-level keys that nothing reads."""

import pytest

from gymq.config import ConfigError
from gymq.config.unknown import OPTIONS_INSTEAD, WITHOUT_MEANING, check_keys

from .conftest import ENV


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "+capitls=1",
            r"^override \+capitls=1: no key capitls is known and nothing refers to it; did you mean capitals\?$",
        ),
        ("+bridg.port=3", r"^override \+bridg\.port=3: no key bridg .*; did you mean bridge\?$"),
        ("+temprature=1", r"; did you mean responses_create_params\.temperature\?$"),
        ("+zzz=1", r"^override \+zzz=1: no key zzz .* belong in env\.yaml$"),
        (
            "+num_repeats=4",
            r"^override \+num_repeats=4: num_repeats is an option of `gymq collect` here: --num-repeats$",
        ),
        ("+api_token=abc", r"^override \+api_token=\*\*\*\*: no key api_token is known"),
        ("++capitlas.resources_servers.mcqa.depth=1", r"no key capitlas .*; did you mean capitals\?$"),
        ("+head_server.prt=1", r"^override \+head_server\.prt=1: head_server: no setting prt; did you mean port\?$"),
        (
            "+capitals.resource_servers=1",
            r"^override \+capitals\.resource_servers=1: capitals: no key resource_servers;",
        ),
        ("+responses_create_params.temprature=1", r"no parameter temprature; did you mean temperature\?"),
        ("+responses_create_params=5", r"^override \+responses_create_params=5: .* must be a mapping, not 5$"),
        ("+head_server=5", r"^override \+head_server=5: head_server: must be a mapping, not 5$"),
    ],
)
def test_an_override_that_nothing_reads_is_refused_with_the_nearest_key(load_files, files, override, message):
    config = load_files(files, override, env=ENV)
    with pytest.raises(ConfigError, match=message):
        check_keys(config)


def test_a_key_of_a_file_is_refused_with_its_line(load_files, files):
    config = load_files({**files, "x.yaml": "\nconfig_path: []\nresult_dir: y"}, env=ENV)
    with pytest.raises(ConfigError) as refused:
        check_keys(config)
    first, second = str(refused.value).split("?; ")
    assert first == "x.yaml:2: no key config_path is known and nothing refers to it; did you mean config_paths"
    assert second == "x.yaml:3: no key result_dir is known and nothing refers to it; did you mean results_dir?"


@pytest.mark.parametrize(
    "text",
    [
        "shared: 3\nsolver: {responses_api_agents: {simple_agent: {max_steps: '${shared}'}}}",
        "shared: {a: 3}\nsolver: {responses_api_agents: {simple_agent: {max_steps: '${shared.a}'}}}",
        "shared: {b: 3}\nother: b\nsolver: {responses_api_agents: {simple_agent: {max_steps: '${shared.${other}}'}}}",
        "shared: {a: 3}\nsolver: {responses_api_agents: {simple_agent: {more: '${copy:shared}'}}}",
        "shared: {a: 3}\nsolver: {responses_api_agents: {simple_agent: {more: {_copy: shared, b: 1}}}}",
        "solver: null",
        "policy_model_name: m",
        "bridge: {port: 3}",
        "skip_verification: true",
        "responses_create_params: {temperature: 1}",
    ],
)
def test_what_is_referred_to_or_known_is_accepted(load_files, files, text):
    assert check_keys(load_files({**files, "x.yaml": text}, env=ENV)) == []


def test_a_block_without_entrypoint_is_named(load_files, files):
    block = "part: {resources_servers: {mcqa: {domain: math}}}"
    assert check_keys(load_files({**files, "x.yaml": block}, env=ENV)) == [
        "x.yaml:1: part has no `entrypoint`, so it describes no worker and is ignored"
    ]


def test_env_yaml_may_bring_what_this_configuration_does_not_use(load_files, files):
    assert check_keys(load_files(files, env=f"{ENV}\njudge_url: http://judge")) == []


def test_settings_of_nemo_gym_without_meaning_are_named_once(load_files, files):
    more = "wandb_project: a\nnum_repeats: 3\n"
    overrides = ("++wandb_project=b", "++num_repeats=4")
    config = load_files({**files, "x.yaml": more, "y.yaml": more}, *overrides, env=ENV)
    assert sorted(check_keys(config)) == [
        "num_repeats has no meaning here and is ignored; use --num-repeats",
        "wandb_project has no meaning here and is ignored",
    ]


def test_no_name_is_in_two_lists():
    assert WITHOUT_MEANING.isdisjoint(OPTIONS_INSTEAD)
