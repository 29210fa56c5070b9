"""gymq config: what workers get, and what is wrong with it."""

import json

import pytest

from tests.cli.conftest import LETTERS, row, write_workers


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
    lines = [line for line in called.err.splitlines() if "config.yaml:" in line]
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


def test_a_verifier_without_a_policy_gets_a_mock_and_a_notice(gymq, here, config):
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
        (["explain"], "unknown action 'explain'"),
        (["-c", "nix.yaml"], "nix.yaml does not exist"),
        (["check"], "describes no workers"),
        (["nothing=1"], "there is no nothing"),
    ],
)
def test_what_cannot_be_shown_is_refused(gymq, here, arguments, reason):
    called = gymq("config", *arguments)
    assert called.status == 2
    assert reason in called.err


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("++bridge.prot=3", "gymq: override ++bridge.prot=3: bridge: no option prot; did you mean port?"),
        ("++bridge.port=low", "gymq: override ++bridge.port=low: bridge: port: must be a whole number, not 'low'"),
        ("+temprature=1", "gymq: override +temprature=1: no key temprature is known"),
        ("+num_repeat=4", "nothing refers to it; did you mean --num-repeats, an option of `gymq collect`?"),
        (
            "++letters_agent.responses_api_agents.simple_agent.max_stepz=3",
            "gymq: override ++letters_agent.responses_api_agents.simple_agent.max_stepz=3: letters_agent: "
            "no option max_stepz; did you mean max_steps?",
        ),
    ],
)
@pytest.mark.parametrize(
    "command", [["config", "check"], ["up"], ["collect", "--rows", "rows.jsonl", "-o", "out.jsonl"]]
)
def test_unknown_keys_and_options_are_refused_by_every_command(gymq, here, config, command, override, message):
    (here / "rows.jsonl").write_text(json.dumps(row("a letter?", "A")))
    called = gymq(*command, "-c", config, override)
    assert called.status == 2
    assert message in called.err
    assert not (here / ".gymq").exists()


def test_a_worker_that_does_not_exist_is_named_with_file_and_line(gymq, here, config):
    (here / "more.yaml").write_text(
        "letters:\n  resources_servers:\n    mcqb:\n      entrypoint: worker.py\n      domain: other\n"
    )
    called = gymq("config", "check", "-c", "more.yaml")
    assert called.err.startswith("gymq: more.yaml:3: there is no resources worker named 'mcqb': "), called.err


def test_a_wrong_option_is_named_with_file_and_line(gymq, here, config):
    (here / "more.yaml").write_text("letters_agent:\n  responses_api_agents:\n    simple_agent:\n      max_stepz: 3\n")
    called = gymq("config", "check", "-c", config, "-c", "more.yaml")
    assert called.err == "gymq: more.yaml:4: letters_agent: no option max_stepz; did you mean max_steps?\n"


def test_what_has_no_meaning_here_is_named_and_ignored(gymq, here, config):
    text = "verbose: true\nletters_agent: {responses_api_agents: {simple_agent: {judge_model_server: x}}}"
    (here / "more.yaml").write_text(text)
    called = gymq("config", "check", "-c", config, "-c", "more.yaml")
    assert called.status == 0
    assert called.err.splitlines() == [
        "gymq: verbose has no meaning here and is ignored",
        "gymq: letters_agent: judge_model_server has no meaning here and is ignored",
    ]


def test_an_option_of_a_file_worker_is_set_by_the_name_of_its_instance(gymq, here, config):
    called = gymq("config", "check", "-c", config, "policy_model.max_concurrency=3", "++letters.num_workers=2")
    assert (called.status, called.err) == (0, "")
    called = gymq("config", "check", "-c", config, "policy_model.max_concurency=3")
    assert called.err == (
        "gymq: override policy_model.max_concurency=3: policy_model: "
        "no option max_concurency; did you mean max_concurrency?\n"
    )


def test_a_configuration_is_used_from_another_folder(gymq, here):
    author = here / "author"
    author.mkdir()
    write_workers(author)
    (author / "config.yaml").write_text((author / "config.yaml").read_text().replace(f"{author}/", "./"))
    called = gymq("config", "check", "-c", "author/config.yaml")
    assert (called.status, called.err) == (0, "")
    (author / "letters.py").unlink()
    called = gymq("config", "check", "-c", "author/config.yaml")
    assert called.status == 2
    assert called.err == (f"gymq: author/config.yaml:1: file letters.py not found: neither in {author} nor in {here}\n")


def test_an_option_of_the_simulated_policy_is_set_by_its_instance(gymq, here):
    (here / "letters.py").write_text(LETTERS)
    called = gymq("config", "show", "--json", "--resources", "letters.py", "policy_model.skill=0.25")
    assert called.json["config"]["policy_model"]["responses_api_models"]["simulated_model"]["skill"] == 0.25
    called = gymq("config", "check", "--resources", "letters.py", "policy_modle.skill=0.25")
    assert "override policy_modle.skill=0.25: there is no policy_modle" in called.err


def test_a_wrong_url_is_named_by_its_option_and_without_the_key(gymq, here, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-user")
    (here / "letters.py").write_text(LETTERS)
    called = gymq("config", "check", "--resources", "letters.py", "--model-url", "localhost:8000/v1", "--model", "m")
    assert "gymq: --model-url: policy_model: openai_base_url: expected a URL such as" in called.err
    assert "sk-of-a-user" not in called.out + called.err
