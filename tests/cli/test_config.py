"""gymq config: what workers get, and what is wrong with it."""

import json

import pytest

from .conftest import write_workers


@pytest.fixture
def config(here):
    return write_workers(here)


def test_it_shows_the_resolved_configuration_and_its_instances(gymq, config):
    called = gymq("config", "-c", config, "+agent_name=letters_agent", "+who=${agent_name}")
    assert called.status == 0
    assert "who: letters_agent" in called.out
    assert "letters_agent  agents     simple_agent" in called.out


def test_secrets_are_masked(gymq, config):
    overrides = ["+policy_api_key=sk-123", "+url=https://me:hunter2@example.org/v1"]
    for arguments in ([], ["--json"]):
        called = gymq("config", "show", "-c", config, *overrides, *arguments)
        assert called.status == 0
        assert "sk-123" not in called.out
        assert "hunter2" not in called.out
        assert "****" in called.out


def test_as_json_it_can_be_read_by_programs(gymq, config):
    found = gymq("config", "--json", "-c", config).json
    assert found["config"]["letters_agent"]["responses_api_agents"]["simple_agent"]["entrypoint"] == "worker.py"
    assert [instance["name"] for instance in found["instances"]] == ["letters", "letters_agent", "policy_model"]


def test_check_finds_nothing_wrong_with_a_good_one(gymq, config):
    called = gymq("config", "check", "-c", config)
    assert called.status == 0
    assert "no mistakes" in called.out


def test_check_names_every_wrong_worker_on_a_line_of_its_own(gymq, here, config):
    tree = json.loads(config.read_text())
    tree["letters_agent"]["responses_api_agents"]["simple_agent"]["max_stepz"] = 3
    tree["other"] = {"resources_servers": {"no_such_worker": {"entrypoint": "x", "domain": "other"}}}
    tree["broken"] = {"resources_servers": {"./broken.py": {"entrypoint": "x", "domain": "other"}}}
    (here / "broken.py").write_text("def f(:\n")
    config.write_text(json.dumps(tree))
    called = gymq("config", "check", "-c", config)
    assert called.status == 2
    lines = called.err.splitlines()
    assert len(lines) == 3
    assert "letters_agent" in lines[0]
    assert "max_stepz" in lines[0]
    assert "no_such_worker" in lines[1]
    assert "broken.py" in lines[2]
    found = gymq("config", "check", "--json", "-c", config)
    assert found.status == 2
    assert found.json["ok"] is False
    assert len(found.json["mistakes"]) == 3


def test_check_finds_a_reference_to_nobody(gymq, config):
    override = "letters_agent.responses_api_agents.simple_agent.resources_server.name=lettres"
    called = gymq("config", "check", "-c", config, override)
    assert called.status == 2
    assert "did you mean letters?" in called.err


def test_a_verifier_without_a_policy_gets_a_stand_in_and_is_told_so(gymq, here, config):
    shown = gymq("config", "check", "--resources", "letters.py")
    assert shown.status == 0
    assert "simulated_model" in shown.out
    assert "--model-url" in shown.err
    named = gymq("config", "check", "--resources", "letters.py", "--model-url", "http://x", "--model", "m")
    assert named.status == 0
    assert named.err == ""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["explain"], "no action 'explain'"),
        (["-c", "nix.yaml"], "nix.yaml does not exist"),
        (["check"], "describes no workers"),
        (["nothing=1"], "there is no nothing"),
    ],
)
def test_what_cannot_be_shown_is_refused(gymq, here, arguments, reason):
    called = gymq("config", *arguments)
    assert called.status == 2
    assert reason in called.err
