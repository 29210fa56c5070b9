"""What `gymq collect` refuses before it starts a cluster, and what it does when an endpoint fails later."""

import inspect
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gymq
from gymq.cli.shared.configuration import read_config
from gymq.cli.shared.parameters import WorkerSources
from gymq.errors import UsageError
from gymq.failures import InvalidTask
from gymq.protocol.instances import Instance
from gymq.runs.collection.preflight import RowTypes, probe_models

from .conftest import LETTERS, Called, Command, row
from .endpoint import PROBE, RESPONSE, prompt_of, served


class Endpoint:
    """Answers requests, or fails with a status: all of them, or all but the first of a start."""

    def __init__(self) -> None:
        self.status = 200
        self.status_of_probe = 200
        self.body: dict[str, Any] = {"error": {"message": "no"}}
        self.served = ["alpha", "alpha-2", "beta"]
        self.prompts: list[str] = []
        self.url = ""

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path.endswith("/models"):
            return 200, {"data": [{"id": name} for name in self.served]}
        prompt = prompt_of(body)
        self.prompts.append(prompt)
        status = self.status_of_probe if prompt == PROBE else self.status
        return status, RESPONSE if status == 200 else self.body


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    with served(made.answer, Retry_After="600") as made.url:
        yield made


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment and one row for it."""
    monkeypatch.setenv("GYMQ_MODEL_API_KEY", "sk-of-this-test-012345")
    (here / "letters.py").write_text(LETTERS)
    write_rows(here, row("first letter", "A"))
    return here


def write_rows(folder: Path, *rows: dict[str, Any]) -> None:
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))


def collect(gymq: Command, *arguments: object, output: str = "out.jsonl") -> Called:
    return gymq("collect", "--resources", "letters.py", "--rows", "rows.jsonl", "-o", output, *arguments)


def refused(called: Called, folder: Path) -> str:
    """What a command said that started no cluster and left no file of a run."""
    assert called.status == 2
    assert not (folder / ".gymq").exists()
    assert not list(folder.glob("*_run.json"))
    return called.err


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_configuration_without_a_policy_says_how_to_add_one(gymq: Command, folder: Path) -> None:
    refused = gymq("collect", "-c", "workers/resources/mcqa/config.yaml", "--rows", "rows.jsonl", "-o", "out.jsonl")
    assert refused.status == 2
    said = (
        "--model-url and --model add policy_model, --config workers/models/simulated_model/config.yaml adds a simulated"
    )
    assert said in " ".join(refused.err.split())


def test_a_folder_without_benchmarks_is_named(gymq: Command, folder: Path) -> None:
    refused = gymq("collect", "--benchmark", "sums", "--search-dir", "nowhere")
    assert (refused.status, refused.err) == (2, "gymq: --search-dir nowhere: expected a folder benchmarks/ in it\n")


def test_a_missing_input_is_refused_before_a_cluster_starts(gymq: Command, folder: Path) -> None:
    (folder / "rows.jsonl").unlink()
    assert "input file rows.jsonl not found" in refused(collect(gymq), folder)


def test_rows_without_an_agent_or_an_environment_are_told_the_options(gymq: Command, folder: Path) -> None:
    said = refused(gymq("collect", "--rows", "rows.jsonl"), folder)
    assert said.endswith("no environment is given: --resources FILE.py, --config FILE or --agent NAME names one\n")


def test_an_input_without_its_option_is_told_the_option(gymq: Command, folder: Path) -> None:
    called = gymq("collect", "--resources", "letters.py", "rows.jsonl")
    assert refused(called, folder) == "gymq: rows.jsonl: rows are given as --rows rows.jsonl\n"


def test_a_missing_input_is_all_that_a_collection_says(gymq: Command, folder: Path) -> None:
    called = gymq("collect", "--resources", "letters.py")
    assert refused(called, folder) == (
        "gymq: missing --rows FILE, or --dataset NAME; `gymq collect --help` explains them\n"
    )


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_input_is_refused_before_a_cluster_starts(gymq: Command, folder: Path, text: str) -> None:
    (folder / "rows.jsonl").write_text(text)
    assert "rows.jsonl" in refused(collect(gymq), folder)


def test_an_output_that_cannot_be_written_is_refused_before_a_cluster_starts(gymq: Command, folder: Path) -> None:
    (folder / "taken").mkdir()
    (folder / "file").touch()
    for output in ("taken", ".", "/"):
        assert f"the output {output} is a folder" in refused(collect(gymq, output=output), folder)
    assert "file/out.jsonl cannot be written" in refused(collect(gymq, output="file/out.jsonl"), folder)
    assert "file_run.json is not beside it" in refused(collect(gymq, output="file"), folder)


def test_a_prompt_that_is_not_utf_8_is_refused(gymq: Command, folder: Path) -> None:
    (folder / "prompt.yaml").write_text("user: '{answer}'", "utf-16")
    assert "prompt.yaml: not UTF-8 text" in refused(collect(gymq, "--prompt-config", "prompt.yaml"), folder)


# Rows -----------------------------------------------------------------------------------------------------------------


def test_rows_that_the_verifier_refuses_start_no_cluster(gymq: Command, folder: Path) -> None:
    write_rows(folder, row("first letter", "A") | {"answer": None}, {"answer": "A"})
    said = refused(collect(gymq), folder)
    assert "2 of 2 rows cannot be used:" in said
    assert "rows.jsonl:1: row does not fit letters: answer: " in said
    assert "rows.jsonl:2: the row has no prompt: its fields are answer; pass --prompt-field NAME, or --prompt-" in said


def test_a_row_that_the_verifier_refuses_is_refused_before_it_is_generated(
    gymq: Command, folder: Path, endpoint: Endpoint
) -> None:
    bad = row("second letter", "A")
    bad["anser"] = bad.pop("answer")
    write_rows(folder, row("first letter", "A"), bad, row("third letter", "A"))
    problem = "rows.jsonl:2: row does not fit letters: answer: missing; the row has 'anser', did you mean 'answer'?"
    arguments = ("--model-url", endpoint.url, "--model", "m", "--json", "--num-repeats", 2)
    called = collect(gymq, *arguments)
    assert called.status == 3
    assert problem in called.err
    assert (called.json["done"], called.json["failed"], called.json["refused"]) == (4, 0, 1)
    assert sorted(endpoint.prompts) == [PROBE, *["first letter"] * 2, *["third letter"] * 2]
    (failure,) = (folder / "out_failures.jsonl").read_text().splitlines()
    assert json.loads(failure)["_ng_failure_message"] == problem
    strict = collect(gymq, *arguments, "--strict-rows", output="strict.jsonl")
    assert strict.status == 2
    assert problem in strict.err


OTHER_ROW = """
import gymq


class Other(gymq.Agent):
    async def run(self, rollout):
        return gymq.Verdict(0.0)
"""


def test_only_rows_that_the_verifier_gets_as_they_are_are_checked(folder: Path) -> None:
    content = json.dumps({"responses_create_params": {"input": "first letter"}}).encode()
    config = read_config(WorkerSources(resources=Path("letters.py")), [])
    with pytest.raises(InvalidTask, match="answer: missing"):
        RowTypes(config.instances).check("letters_simple_agent", content)
    RowTypes(config.instances).check("agent_of_another_cluster", content)
    (folder / "other.py").write_text(OTHER_ROW)
    agent = {"resources_server": {"type": "resources_servers", "name": "letters"}, "entrypoint": "x"}
    for changed in ({"simple_agent": agent | {"skip_verification": True}}, {str(folder / "other.py"): agent}):
        override = f"++letters_simple_agent={json.dumps({'responses_api_agents': changed})}"
        changed_config = read_config(
            WorkerSources(resources=Path("letters.py")), ["++letters_simple_agent=null", override]
        )
        RowTypes(changed_config.instances).check("letters_simple_agent", content)


def test_a_class_of_a_file_that_has_several_is_named_behind_it(gymq: Command, folder: Path) -> None:
    (folder / "worker.py").write_text(LETTERS + LETTERS.replace("class Letters", "class Others"))
    collected = gymq("collect", "--resources", "worker.py:Others", "--rows", "rows.jsonl", "-o", "out.jsonl")
    assert (collected.status, f"\n{folder.name} " in collected.out) == (0, True)
    scored = gymq("score", "--resources", "worker.py:Letters", "--rollouts", "out.jsonl", "-o", "scored.jsonl")
    assert (scored.status, scored.err) == (0, "")
    for wrong, said in (("worker.py", "found Letters, Others"), ("worker.py:Other", "no class Other derived from")):
        assert said in gymq("collect", "--resources", wrong, "--rows", "rows.jsonl").err
    assert (
        "none.py:Others: file not found" in gymq("collect", "--resources", "none.py:Others", "--rows", "rows.jsonl").err
    )


# Endpoints ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "model", "sentence"),
    [
        (401, "m", "401 Unauthorized: no; the key is refused: set GYMQ_MODEL_API_KEY"),
        (403, "m", "403 Forbidden: no; the key may not do this"),
        (404, "alpah", "no model 'alpah' there; it serves alpha, alpha-2, beta"),
        (400, "alpah", "no model 'alpah' there; it serves alpha, alpha-2, beta"),
        (404, "alpha", "no such path or model there: check the URL"),
    ],
)
def test_an_endpoint_that_refuses_starts_no_cluster(
    gymq: Command, folder: Path, endpoint: Endpoint, status: int, model: str, sentence: str
) -> None:
    endpoint.status_of_probe = status
    said = refused(collect(gymq, "--model-url", endpoint.url, "--model", model), folder)
    assert f"policy_model: {endpoint.url}" in said
    assert sentence in said
    assert "sk-of-this-test" not in said


def test_a_given_dialect_is_the_only_one_asked_in(gymq: Command, folder: Path, endpoint: Endpoint) -> None:
    endpoint.status_of_probe = 404
    arguments = ("--model-url", endpoint.url, "--model", "alpha", "--dialect")
    assert f"{endpoint.url}/chat/completions: 404" in refused(collect(gymq, *arguments, "chat"), folder)
    said = refused(collect(gymq, *arguments, "responses"), folder)
    assert f"{endpoint.url}/responses: 404" in said
    assert "use `--dialect chat`" in said
    assert endpoint.prompts == [PROBE] * 2
    assert "--dialect needs --model-url" in refused(collect(gymq, "--dialect", "chat"), folder)


def test_an_endpoint_that_is_not_there_starts_no_cluster(gymq: Command, folder: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, and not listening
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        said = refused(collect(gymq, "--model-url", url, "--model", "m"), folder)
    assert "nothing listens there: is the server started?" in said


def model(name: str, kind: str = "openai_model", **options: Any) -> Instance:
    return Instance(name, "models", kind, options)


def agent(*models: str) -> Instance:
    references = {f"server_{name}": {"type": "responses_api_models", "name": name} for name in models}
    return Instance("agent", "agents", "simple_agent", references)


def at(endpoint: Endpoint, **options: Any) -> dict[str, Any]:
    return {"openai_base_url": endpoint.url, "openai_api_key": "key", "openai_model": "m"} | options


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_endpoint_is_a_warning(folder: Path, endpoint: Endpoint, status: int) -> None:
    endpoint.status_of_probe = status
    said: list[str] = []
    await probe_models([model("policy", **at(endpoint)), agent("policy")], said.append)
    (warning,) = said
    assert warning.startswith("warning: policy: the first request was not answered: ")
    assert f"/responses: {status} " in warning
    assert warning.endswith("; the run starts anyway")


async def test_each_endpoint_is_asked_once(folder: Path, endpoint: Endpoint) -> None:
    options = at(endpoint)
    others = [model("cached", **at(endpoint, cache=True)), model("unused", **at(endpoint, openai_model="n"))]
    simulated = model("simulated", "simulated_model")
    used = agent("policy", "judge", "cached", "simulated")
    await probe_models([model("policy", **options), model("judge", **options), *others, simulated, used], print)
    assert endpoint.prompts == [PROBE]


async def test_a_refused_endpoint_of_vllm_is_refused(folder: Path, endpoint: Endpoint) -> None:
    options = {"base_url": endpoint.url, "api_key": "key", "model": "m"}
    flags = {"return_token_id_information": False, "uses_reasoning_parser": False}
    specs = [model("policy", "vllm_model", **options, **flags), agent("policy")]
    await probe_models(specs, print)
    endpoint.status_of_probe = 401
    with pytest.raises(UsageError, match="401 Unauthorized: no; the key is refused"):
        await probe_models(specs, print)
    assert endpoint.prompts == [PROBE] * 2


async def test_an_engine_of_our_own_is_not_started_to_be_asked(
    folder: Path,
) -> None:
    flags = {"return_token_id_information": False, "uses_reasoning_parser": False}
    said: list[str] = []
    await probe_models([model("policy", "local_vllm_model", model="m", **flags), agent("policy")], said.append)
    assert said == []


@pytest.mark.nightly
def test_a_key_that_is_refused_later_stops_the_run_and_the_same_command_completes_it(
    gymq: Command, folder: Path, endpoint: Endpoint
) -> None:
    write_rows(folder, *(row(f"letter {index}", "A") for index in range(60)))
    arguments = ("--model-url", endpoint.url, "--model", "m", "--concurrency", 1, "--json")
    endpoint.status = 401
    called = collect(gymq, *arguments)
    assert called.status == 3
    assert called.json["failed"] == 32
    assert "stopped: 32 rollouts in a row failed with model_failed at model; 28 of 60 rollouts were not" in called.err
    assert "the key is refused: set GYMQ_MODEL_API_KEY" in called.err
    failures = [json.loads(line) for line in (folder / "out_failures.jsonl").read_text().splitlines()]
    assert {(row["_ng_failure_curable"], row["_ng_failure_terminal"]) for row in failures} == {(True, False)}
    endpoint.status = 200
    called = collect(gymq, *arguments)
    assert called.status == 0, called.err
    assert (called.json["done"], called.json["failed"]) == (60, 0)
    endpoint.status_of_probe = 401  # nothing is left to ask
    called = collect(gymq, *arguments)
    assert called.status == 0, called.err
    assert called.json["done"] == 60


# The same from Python -------------------------------------------------------------------------------------------------


class Row(gymq.Row):
    answer: str


class Letters(gymq.Resources[Row]):
    async def verify(self, request: gymq.VerifyRequest[Row]) -> gymq.Verdict:
        return gymq.Verdict(float(request.reply_text == request.row.answer))


def test_a_refused_key_is_an_error_before_a_cluster_starts(folder: Path, endpoint: Endpoint) -> None:
    endpoint.status_of_probe = 401
    with pytest.raises(gymq.GymqError, match=r"401 Unauthorized: no; the key is refused.*; nothing was submitted"):
        gymq.collect(Letters, "rows.jsonl", model=endpoint.url, model_name="alpha", progress=False)
    assert endpoint.prompts == [PROBE]
    assert not (folder / ".gymq").exists()


def test_rows_are_checked_against_the_class_of_the_program(folder: Path, endpoint: Endpoint) -> None:
    with pytest.raises(gymq.GymqError, match=r"^rows\[0\]: row does not fit Letters: answer: missing"):
        gymq.collect(Letters, [{"prompt": "first letter"}], model=endpoint.url, model_name="alpha", progress=False)
    assert endpoint.prompts == []
    assert not (folder / ".gymq").exists()


def test_a_call_has_named_parameters() -> None:
    assert "max_failures" in inspect.signature(gymq.collect).parameters
    with pytest.raises(TypeError, match=r"^collect\(\) got an unexpected keyword argument 'modle'; did you mean model"):
        gymq.collect(Letters, "rows.jsonl", modle="x")  # type: ignore[call-arg]
