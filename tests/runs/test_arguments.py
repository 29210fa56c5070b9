"""The arguments of `gymq.collect`: which workers they stand for, and which rows."""

import inspect
import json
from typing import Any

import numpy as np
import pandas  # type: ignore[import-untyped]
import pytest

import gymq
from gymq.authoring import OptionsError
from gymq.cli.shared.configuration import read_config
from gymq.cli.shared.parameters import WorkerSources
from gymq.config import ConfigError
from gymq.execution.loading.registry import WorkerNotFound
from gymq.execution.loading.worker_source import find_worker
from gymq.judge import JudgeOptions
from gymq.model import ModelRequest
from gymq.responses import output_text, validate_response
from gymq.runs.collection.arguments import FunctionModel, read_setup, write_rows
from gymq.testing import reply


class Letters(gymq.Resources[gymq.Row]):
    """Reward 1 for anything."""

    class Options(gymq.WorkerOptions):
        count: int = 1

    async def verify(self, request):
        return 1.0


FILE = """
import gymq

class Letters(gymq.Resources[gymq.Row]):
    async def verify(self, request):
        return 1.0
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def implementations(setup):
    return {one.name: one.implementation for one in setup.config.instances}


def test_a_class_is_served_here_with_an_agent_and_a_mock():
    setup = read_setup(Letters, options={"count": 2})
    (letters,) = setup.made.values()
    assert isinstance(letters, Letters)
    assert letters.options.count == 2
    assert list(setup.made) == ["Letters"]
    found = implementations(setup)
    assert (found["Letters_simple_agent"], found["policy_model"]) == ("simple_agent", "simulated_model")
    assert setup.config.only_agent == "Letters_simple_agent"


class Judged(Letters):
    Options = JudgeOptions  # type: ignore[assignment]


class Steps(gymq.TextEnvironment[gymq.Row]):
    def reset(self, row):
        return "Begin."

    def step(self, action):
        return "End.", 1.0, True, False, {}


class Asks(gymq.AskingEnvironment[gymq.Row]):
    async def play(self, row, policy):
        return 1.0


@pytest.mark.parametrize(("environment", "agent"), [(Steps, "gymnasium_agent"), (Asks, "answering_agent")])
def test_an_environment_is_played_by_the_agent_that_its_class_names(here, environment, agent):
    assert implementations(read_setup(environment))[f"{environment.__name__}_{agent}"] == agent
    file = here / "mine.py"
    file.write_text(f"import gymq\n\n\n{inspect.getsource(environment)}")
    assert implementations(read_setup(file))[f"mine_{agent}"] == agent
    assert read_config(WorkerSources(resources=file), []).only_agent == f"mine_{agent}"


def test_the_policy_judges_for_an_environment_that_is_given_no_judge():
    judged = read_setup(Judged).made["Judged"]
    assert isinstance(judged.options, JudgeOptions)
    assert judged.options.judge_model_server.name == "policy_model"
    unknown = {"judge_model_server": {"type": "responses_api_models", "name": "other"}}
    with pytest.raises(ConfigError, match="no responses_api_models are called other"):
        read_setup(Judged, options=unknown)


def test_a_worker_is_named_by_its_name_its_file_or_its_configuration(here):
    (here / "letters.py").write_text(FILE)
    assert implementations(read_setup("mcqa"))["mcqa"] == "mcqa"
    assert implementations(read_setup("letters.py"))["letters"].endswith("letters.py")
    by_config = read_setup(
        ["workers/resources/mcqa/config.yaml", "workers/models/simulated_model/config.yaml"], model="replay_model"
    )
    assert implementations(by_config)["mcqa_simple_agent"] == "simple_agent"
    assert implementations(by_config)["policy_model"] == "replay_model"


@pytest.mark.parametrize("place", ["workers/resources/mcqa", "workers/resources/mcqa/worker.py"])
def test_the_folder_of_a_shipped_worker_is_found_from_everywhere(place):
    assert find_worker(place).implementation == "mcqa"


def test_a_model_is_a_url_a_worker_an_instance_a_class_or_a_function(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    at_url = read_setup(Letters, model="http://127.0.0.1:1/v1", model_name="m").config.instance("policy_model")
    assert at_url.implementation == "openai_model"
    assert (at_url.options["openai_base_url"], at_url.options["openai_model"]) == ("http://127.0.0.1:1/v1", "m")
    assert at_url.options["openai_api_key"] == "sk-1"
    instance = {"responses_api_models": {"simulated_model": {"entrypoint": "worker.py", "seed": 3}}}
    assert read_setup(Letters, model=instance).config.instance("policy_model").options["seed"] == 3
    assert isinstance(read_setup(Letters, model=lambda params: "x").made["policy_model"], FunctionModel)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"model": "http://127.0.0.1:1"}, TypeError, "needs model_name"),
        ({"model_name": "m"}, TypeError, "needs model, the URL"),
        ({"model": 3}, TypeError, "not int"),
        ({"model": "no_such_model"}, WorkerNotFound, "no_such_model"),
        ({"options": {"count": "x"}}, OptionsError, "count"),
        ({"environment": int}, TypeError, "int is not derived from"),
        ({"environment": 3}, TypeError, "^an environment is a class, .*, not int$"),
        ({"environment": "no_such_env"}, WorkerNotFound, "no_such_env"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(arguments, error, said):
    environment = arguments.pop("environment", Letters)
    with pytest.raises(error, match=said):
        read_setup(environment, **arguments)


@pytest.mark.parametrize("answer", ["Bern", reply("Bern")])
async def test_a_function_answers_with_a_text_or_a_response(answer):
    async def later(params):
        return answer

    request = ModelRequest({"input": []}, "s", "r", 5.0)
    for function in (lambda params: answer, later):
        response = validate_response(await FunctionModel(function, name="m").respond(request))
        assert output_text(response) == "Bern"
    with pytest.raises(TypeError, match="returned int"):
        await FunctionModel(lambda params: 3, name="m").respond(request)


def test_rows_are_written_with_plain_values(tmp_path):
    file = tmp_path / "rows.jsonl"
    write_rows([{"prompt": "Why?", "answer": np.int64(3), "many": np.array([1, 2])}], file)
    assert json.loads(file.read_text()) == {"prompt": "Why?", "answer": 3, "many": [1, 2]}
    write_rows(pandas.DataFrame({"prompt": ["a", "b"], "answer": [1, 2]}), file)
    assert [json.loads(line)["answer"] for line in file.read_text().splitlines()] == [1, 2]


def test_a_data_frame_has_no_fields_of_other_rows_and_a_data_set_is_like_a_list(tmp_path):
    rows = [{"prompt": "a", "least": 1.5}, {"prompt": "b", "tags": ["x", None]}]
    frame = pandas.DataFrame(rows).astype({"least": "Float64"})
    write_rows(frame, tmp_path / "frame.jsonl")
    write_rows(rows, tmp_path / "rows.jsonl")
    assert (tmp_path / "frame.jsonl").read_bytes() == (tmp_path / "rows.jsonl").read_bytes()

    class DataSet(list[Any]):
        """As `datasets.Dataset` has it: columns, whatever it is called with."""

        def to_dict(self, batch_size=None):
            return {"prompt": [row["prompt"] for row in self]}

    write_rows(DataSet(rows), tmp_path / "set.jsonl")
    assert (tmp_path / "set.jsonl").read_bytes() == (tmp_path / "rows.jsonl").read_bytes()


def test_no_rows_are_an_error(tmp_path):
    with pytest.raises(ValueError, match="rows: there are none"):
        write_rows([], tmp_path / "rows.jsonl")
    with pytest.raises(TypeError, match=r"^rows are dicts, .*, not int$"):
        write_rows(7, tmp_path / "rows.jsonl")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"repeats": 0}, "^repeats: must be a whole number of at least 1, not 0$"),
        ({"repeats": "3"}, "^repeats: must be a whole number of at least 1, not '3'$"),
        ({"repeats": True}, "^repeats: must be a whole number of at least 1, not True$"),
        ({"repeats": 2**70}, "^repeats: must be at most"),
        ({"limit": 0}, "^limit: must be a whole number of at least 1, not 0$"),
        ({"limit": 2.5}, r"^limit: must be a whole number of at least 1, not 2\.5$"),
        ({"concurrency": 0}, "^concurrency: must be a whole number of at least 1, not 0$"),
        ({"concurrency": "8"}, "^concurrency: must be a whole number of at least 1, not '8'$"),
        ({"timeout_s": "60"}, "^timeout_s: must be a number of seconds, not '60'$"),
        ({"pass_threshold": "high"}, "^pass_threshold: must be a number, not 'high'$"),
        ({"max_failures": "few"}, "^'few' is neither"),
        ({"sampling": {"temprature": 1}}, "temperature"),
        ({"sampling": {"temperature": "hot"}}, "temperature"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_starts(arguments, said):
    with pytest.raises((ValueError, ConfigError), match=said):
        gymq.collect(Letters, [{"prompt": "x"}], **arguments)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("Why?", r"rows\[1\]: a row is a dict, not str"),
        ({"prompt": "x", "thing": object()}, r"rows\[1\]: a value of type object has no form in JSON"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_by_its_position(tmp_path, row, said):
    with pytest.raises(ValueError, match=said):
        write_rows([{"prompt": "ok"}, row], tmp_path / "rows.jsonl")
