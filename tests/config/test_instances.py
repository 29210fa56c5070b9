"""Which mappings are instances, what is checked about them, and the references between them."""

import logging
from pathlib import Path

import pytest

from gymq.config import ConfigError, Instance
from gymq.config.instances import worker_options

ENV = "policy_base_url: http://up/v1\npolicy_api_key: sek"


def with_dataset(text):
    return (
        "a:\n  responses_api_agents:\n    simple_agent:\n      entrypoint: app.py\n      datasets:\n"
        f"      - {{name: d, jsonl_fpath: d.jsonl, {text}}}\n"
    )


def test_instances_are_found_in_order_of_appearance(load_files, files):
    config = load_files(files, env=ENV)
    assert [(i.name, i.kind, i.server_type, i.implementation) for i in config.instances] == [
        ("capitals", "resources", "resources_servers", "mcqa"),
        ("solver", "agents", "responses_api_agents", "simple_agent"),
        ("policy_model", "models", "responses_api_models", "vllm_model"),
    ]


def test_options_are_what_was_configured_and_resolved(load_files, files):
    config = load_files(files, env=ENV)
    assert config.instance("policy_model").options == {
        "entrypoint": "app.py",
        "base_url": "http://up/v1",
        "api_key": "sek",
    }


def test_options_that_the_format_does_not_know_stay_as_they_are(load_files, files):
    override = "+capitals.resources_servers.mcqa.max_concurrency=7"
    assert load_files(files, override, env=ENV).instance("capitals").options["max_concurrency"] == 7


def test_worker_options_leave_out_what_belongs_to_the_format():
    options = {"entrypoint": "app.py", "domain": "math", "port": 1, "datasets": [], "verified": True, "depth": 3}
    assert worker_options(Instance("a", "resources", "mcqa", options)) == {"depth": 3}


def test_only_one_agent_needs_no_name(load_files, files):
    other = {"other.yaml": files["agent.yaml"].replace("solver", "other")}
    assert load_files(files, env=ENV).only_agent == "solver"
    assert load_files({**files, **other}, env=ENV).only_agent is None


def test_an_unknown_instance_is_an_error_that_suggests_one(load_files, files):
    with pytest.raises(ConfigError, match=r"^no instance is named policy_modle; did you mean policy_model\?$"):
        load_files(files, env=ENV).instance("policy_modle")


@pytest.mark.parametrize(
    "text",
    [
        "x: {resources_servers: {mcqa: {domain: math}}}",
        "x: {resources_servers: {mcqa: null}}",
        "x: {resources_servers: null}",
        "x: {entrypoint: app.py}",
        "x: {other_servers: {mcqa: {entrypoint: app.py}}}",
        "x: [resources_servers]",
        "x: resources_servers",
    ],
)
def test_a_mapping_of_another_shape_is_silently_no_instance(load_files, text):
    config = load_files({"a.yaml": text})
    assert (config.instances, "x" in config.tree) == ([], True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("resources_servers: {mcqa: {entrypoint: app.py}}", "x.resources_servers.mcqa.domain: missing"),
        ("resources_servers: {mcqa: {entrypoint: app.py, domain: maths}}", "mcqa.domain: must be 'math', "),
        ("resources_servers: {mcqa: {entrypoint: null, domain: math}}", "mcqa.entrypoint: must be text"),
        ("resources_servers: {m: {entrypoint: a, domain: math}, n: {}}", "exactly one implementation, not m, n"),
        ("responses_api_models: {v: {entrypoint: a, port: http}}", "v.port: must be a whole number, not 'http'"),
        ("responses_api_models: {v: {entrypoint: a, port: 70000}}", "v.port: must be less than or equal to 65535"),
        ("responses_api_models: {v: {entrypoint: a, num_workers: 0}}", "v.num_workers: must be greater than or"),
        ("responses_api_models: {v: {entrypoint: a, domain: maths}}", "v.domain: must be"),
        ("responses_api_models: {v: {entrypoint: a}}\n  resources_servers: {}", "x: more than one server type"),
    ],
)
def test_an_instance_that_is_not_valid_is_refused(load_files, text, problem):
    with pytest.raises(ConfigError) as caught:
        load_files({"a.yaml": f"x:\n  {text}"})
    message = str(caught.value)
    assert message.startswith("1 instance is not valid: x")
    assert problem in message
    assert "(a.yaml:" in message


def test_every_problem_of_every_instance_is_named(load_files):
    text = "x: {resources_servers: {m: {entrypoint: 1}}}\ny: {responses_api_models: {v: {entrypoint: a, port: -1}}}"
    with pytest.raises(ConfigError) as caught:
        load_files({"a.yaml": text})
    for part in ("2 instances are", "m.entrypoint", "m.domain", "y.responses_api_models.v.port"):
        assert part in str(caught.value)


def test_an_instance_that_is_not_valid_can_be_skipped(load_files, files, caplog):
    broken = files | {"broken.yaml": "broken: {resources_servers: {mcqa: {entrypoint: app.py}}}"}
    with caplog.at_level(logging.WARNING, logger="gymq.config"):
        config = load_files(broken, "+error_on_almost_servers=false", env=ENV)
    assert [instance.name for instance in config.instances] == ["capitals", "solver", "policy_model"]
    assert "broken.resources_servers.mcqa.domain: missing" in caplog.text


def test_a_skipped_instance_cannot_be_referred_to(load_files, files):
    with pytest.raises(ConfigError, match="no resources_servers are called capitals"):
        load_files(files, "~capitals.resources_servers.mcqa.domain", "+error_on_almost_servers=false", env=ENV)


def test_whether_to_skip_is_true_or_false(load_files):
    with pytest.raises(ConfigError, match=r"^error_on_almost_servers must be true or false, not 'no'$"):
        load_files({}, "+error_on_almost_servers=no")


@pytest.mark.parametrize(
    "domain",
    [
        "math",
        "coding",
        "agent",
        "knowledge",
        "instruction_following",
        "long_context",
        "safety",
        "games",
        "translation",
        "e2e",
        "rlhf",
        "other",
    ],
)
def test_every_domain_of_the_format_is_known(load_files, files, domain):
    config = load_files(files, f"capitals.resources_servers.mcqa.domain={domain}", env=ENV)
    assert config.instance("capitals").options["domain"] == domain


def test_a_key_that_configures_the_run_cannot_name_an_instance(load_files):
    with pytest.raises(ConfigError, match=r"^1 instance is not valid: head_server: the key configures the run"):
        load_files({"a.yaml": "head_server: {resources_servers: {m: {entrypoint: a, domain: math}}}"})


def test_a_number_cannot_name_an_instance(load_files):
    with pytest.raises(ConfigError, match="7: an instance needs a name that is text"):
        load_files({"a.yaml": "7: {resources_servers: {m: {entrypoint: a, domain: math}}}"})


def test_a_number_cannot_name_an_implementation(load_files):
    with pytest.raises(ConfigError, match=r"e\.resources_servers\.5: an implementation needs a name that is text"):
        load_files({"a.yaml": "e: {resources_servers: {5: {entrypoint: x, domain: other}}}"})


def test_a_reference_must_name_an_instance(load_files, files):
    with pytest.raises(ConfigError) as caught:
        load_files(files, "solver.responses_api_agents.simple_agent.resources_server.name=capital", env=ENV)
    assert str(caught.value) == (
        "solver.responses_api_agents.simple_agent.resources_server.name: no resources_servers are called capital; "
        "did you mean capitals? (command line)"
    )


def test_a_reference_that_resembles_nothing_lists_what_there_is(load_files, files):
    with pytest.raises(ConfigError, match="called xyz; there are: policy_model"):
        load_files(files, "solver.responses_api_agents.simple_agent.model_server.name=xyz", env=ENV)


def test_a_reference_must_have_the_type_of_its_instance(load_files, files):
    with pytest.raises(ConfigError, match="no resources_servers are called policy_model; policy_model is one of the"):
        load_files(files, "solver.responses_api_agents.simple_agent.resources_server.name=policy_model", env=ENV)


def test_a_reference_to_a_block_without_entrypoint_says_so(load_files, files):
    with pytest.raises(ConfigError, match=r"no resources_servers are called capitals; the block capitals has no `ent"):
        load_files(files, "~capitals.resources_servers.mcqa.entrypoint", env=ENV)


def test_a_reference_may_stand_in_any_option_of_any_instance(load_files, files):
    override = "+capitals.resources_servers.mcqa.judge={type: responses_api_models, name: nobody}"
    with pytest.raises(ConfigError, match=r"^capitals\.resources_servers\.mcqa\.judge\.name: no responses_api_models"):
        load_files(files, override, env=ENV)


@pytest.mark.parametrize(
    "value",
    ["{type: function, name: f}", "{type: resources_servers}", "{type: [], name: f}", "{o: {type: a, name: b}}"],
)
def test_a_mapping_with_another_type_is_no_reference(load_files, files, value):
    load_files(files, f"+capitals.resources_servers.mcqa.option={value}", env=ENV)


@pytest.mark.parametrize(
    "dataset",
    [
        "type: example",
        "type: train, license: MIT",
        "type: validation, license: Apache 2.0, num_repeats: 4",
        "type: train, license: TBD, source: {type: gitlab, dataset_name: d, version: 0.0.1, artifact_fpath: t.jsonl}",
        "type: train, license: TBD, source: {type: huggingface, repo_id: o/d}",
        "type: train, license: TBD, gitlab_identifier: {dataset_name: d, version: 0.0.1, artifact_fpath: t.jsonl}",
        "type: train, license: TBD, huggingface_identifier: {repo_id: o/d, artifact_fpath: t.jsonl}",
        "type: benchmark, prepare_script: p.py, prompt_config: p.yaml",
    ],
)
def test_data_sets_of_the_format_are_accepted(load_files, dataset):
    assert len(load_files({"a.yaml": with_dataset(dataset)}).instances) == 1


@pytest.mark.parametrize(
    ("dataset", "problem"),
    [
        ("type: train", "datasets[0]: a train data set needs a license, such as `license: Apache 2.0`"),
        ("type: validation, license: null", "datasets[0]: a validation data set needs a license"),
        ("type: train, license: WTFPL", "datasets[0].license: must be 'Apache 2.0', "),
        ("type: test", "datasets[0]: "),
        ("license: MIT", "datasets[0]: "),
        ("type: example, num_repeats: 0", "datasets[0].num_repeats: must be greater than or equal to 1, not 0"),
        ("type: benchmark", "datasets[0].prepare_script: missing"),
        ("type: example, source: {type: s3}", "datasets[0].source: "),
        ("type: example, prompt_config: 5", "datasets[0].prompt_config: "),
        ("type: benchmark, prepare_script: p.py, source: 'https://x'", "datasets[0].source: "),
        ("type: benchmark, prepare_script: p.py, huggingface_identifier: a/b", "datasets[0].huggingface_identifier: "),
        ("type: example, source: {type: gitlab, dataset_name: d}", "datasets[0].source.version: missing"),
        (
            "type: example, source: {type: huggingface, repo_id: a}, huggingface_identifier: {repo_id: a}",
            "datasets[0]: source excludes gitlab_identifier and huggingface_identifier",
        ),
    ],
)
def test_a_data_set_that_is_not_valid_makes_its_instance_not_valid(load_files, dataset, problem):
    with pytest.raises(ConfigError) as caught:
        load_files({"a.yaml": with_dataset(dataset)})
    assert f"a.responses_api_agents.simple_agent.{problem}" in str(caught.value)
    assert "(a.yaml:6)" in str(caught.value)


@pytest.mark.parametrize("key", ["skip_verification", "skip_verification_reward"])
def test_run_wide_agent_options_reach_agents_that_do_not_set_them(load_files, files, key):
    own = files | {"own.yaml": f"own: {{responses_api_agents: {{simple_agent: {{entrypoint: a, {key}: 0}}}}}}"}
    config = load_files(own, f"++{key}=1", env=ENV)
    assert config.instance("solver").options[key] == 1
    assert config.instance("own").options[key] == 0
    assert key not in config.instance("capitals").options
    assert config.tree["solver"]["responses_api_agents"]["simple_agent"][key] == 1


@pytest.mark.parametrize("key", ["results_dir", "cache_dir"])
def test_directories_become_absolute(load_files, tmp_path, key):
    assert load_files({}, f"{key}=out").tree[key] == str(tmp_path / "out")
    assert load_files({}, f"{key}='~/out'").tree[key] == str(Path.home() / "out")
    with pytest.raises(ConfigError, match=f"^{key} must be the path of a directory, not 5$"):
        load_files({}, f"{key}=5")
