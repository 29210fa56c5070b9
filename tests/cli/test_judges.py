"""Options of a file with a verifier, and the model that judges."""

import json

import pytest

from gymq.cli.shared.configuration import read_config
from gymq.cli.shared.parameters import WorkerSources

JUDGED = """
import gymq


class Judged(gymq.Resources):
    class Options(gymq.WorkerOptions):
        reader: gymq.Reference
        second: gymq.Reference | None = None
        depth: int = 1

    async def verify(self, request):
        return gymq.Verdict(1.0)
"""
JUDGE = ["--judge-url", "http://127.0.0.1:1/v1", "--judge-model", "large"]


@pytest.fixture
def judged(here, monkeypatch):
    for name in ("GYMQ_JUDGE_API_KEY", "GYMQ_MODEL_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (here / "judged.py").write_text(JUDGED)
    return here / "judged.py"


def options_of(called):
    """The options of the verifier in what `gymq config show --json` printed."""
    ((_, options),) = called.json["config"]["judged"]["resources_servers"].items()
    return options


def test_the_policy_judges_where_a_required_judge_is_not_set(gymq, judged):
    called = gymq("config", "show", "--json", "--resources", judged)
    assert options_of(called)["reader"] == {"type": "responses_api_models", "name": "policy_model"}
    assert "second" not in options_of(called)
    assert "gymq: judged.reader is not set, so policy_model judges" in called.err
    assert gymq("config", "check", "--resources", judged).status == 0


def test_the_judge_is_named_to_every_option_that_is_not_set(gymq, judged):
    called = gymq("config", "show", "--json", "--resources", judged, *JUDGE)
    named = {"type": "responses_api_models", "name": "judge"}
    assert (options_of(called)["reader"], options_of(called)["second"]) == (named, named)
    assert "judges" not in called.err
    model = called.json["config"]["judge"]["responses_api_models"]["openai_model"]
    assert (model["openai_base_url"], model["openai_model"]) == ("http://127.0.0.1:1/v1", "large")
    assert gymq("config", "check", "--resources", judged, *JUDGE).status == 0


def test_a_judge_that_a_file_names_stays_unless_it_is_the_policy(gymq, here, judged):
    tree = {
        "third": {"responses_api_models": {"simulated_model": {"entrypoint": "x"}}},
        "policy_model": {"responses_api_models": {"simulated_model": {"entrypoint": "x"}}},
        "judged": {
            "resources_servers": {
                str(judged): {
                    "entrypoint": "x",
                    "domain": "other",
                    "reader": {"type": "responses_api_models", "name": "third"},
                    "second": {"type": "responses_api_models", "name": "policy_model"},
                }
            }
        },
    }
    (here / "config.yaml").write_text(json.dumps(tree))
    options = options_of(gymq("config", "show", "--json", "-c", "config.yaml", *JUDGE))
    assert (options["reader"]["name"], options["second"]["name"]) == ("third", "judge")


@pytest.mark.parametrize(
    ("variables", "key"),
    [
        ({}, "none"),
        ({"OPENAI_API_KEY": "policy-key"}, "policy-key"),
        ({"GYMQ_JUDGE_API_KEY": "judge-key", "OPENAI_API_KEY": "policy-key"}, "judge-key"),
    ],
)
def test_the_key_of_the_judge_comes_from_its_variable_or_that_of_the_policy(judged, monkeypatch, variables, key):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config = read_config(WorkerSources(resources=judged, judge_url="http://127.0.0.1:1/v1", judge_model="large"), [])
    assert config.instance("judge").options["openai_api_key"] == key


def test_an_option_of_the_file_is_set_with_its_type_and_checked(gymq, judged):
    called = gymq("config", "show", "--json", "--resources", judged, "--option", "depth=3")
    assert options_of(called)["depth"] == 3
    called = gymq("config", "check", "--resources", judged, "--option", "dept=3")
    assert called.status == 2
    assert "gymq: --option dept: judged: no option dept; did you mean depth?\n" in called.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--judge-url", "http://x"], "--judge-url needs --judge-model"),
        (["--judge-model", "m"], "--judge-model needs --judge-url"),
        (["--option", "depth=1"], "--option needs --resources FILE.py"),
        (["--resources", "judged.py", "--option", "depth"], "--option depth: write KEY=VALUE"),
        (["--resources", "none.py"], "gymq: --resources none.py: file not found\n"),
        (
            ["--resources", "mcqa"],
            "for an environment with a configuration give --config workers/resources/mcqa/config.yaml",
        ),
        (["--resources", "plain.py", *JUDGE], "no environment of this configuration has an option that names a judge"),
    ],
)
@pytest.mark.parametrize(
    "command", [["config", "check"], ["up"], ["collect", "--rows", "rows.jsonl", "-o", "out.jsonl"]]
)
def test_options_that_do_not_go_together_are_refused(gymq, here, judged, command, arguments, reason):
    (here / "plain.py").write_text(
        "import gymq\n\n\nclass Plain(gymq.Resources):\n    async def verify(self, request):\n        return 1.0\n"
    )
    (here / "rows.jsonl").write_text('{"responses_create_params": {"input": "x"}}\n')
    called = gymq(*command, *arguments)
    assert called.status == 2
    assert reason in called.err


def test_a_file_that_cannot_be_loaded_is_the_problem_and_not_its_judge(gymq, here):
    (here / "wrong.py").write_text("import gymq.nothing\n")
    called = gymq("config", "check", "--resources", "wrong.py", *JUDGE)
    assert called.status == 2
    assert "No module named 'gymq.nothing'" in called.err
    assert "--judge-url" not in called.err
