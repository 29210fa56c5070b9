"""Sampling parameters of `gymq collect`: what arrives at the endpoint, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from gymq.cli.shared.parameters import Sampling
from gymq.cli.shared.sampling import read_sampling
from gymq.config import ConfigError
from gymq.errors import UsageError
from gymq.runs.collection.options import default_output

from .conftest import Command, write_environment
from .endpoint import Endpoint


@pytest.mark.nightly
@pytest.mark.parametrize("dialect", ["responses", "chat"])
def test_sampling_parameters_arrive_at_the_endpoint_and_win_over_the_row(
    gymq: Command, here: Path, endpoint: Endpoint, dialect: str
) -> None:
    write_environment(here, temperature=0.1, top_p=0.9)
    called = gymq(
        *("collect", "--resources", "letters.py", "--rows", "rows.jsonl"),
        *("--model-url", endpoint.url, "--model", "m", "--temperature", 0.5, "--max-tokens", 7),
        *("--sampling", "reasoning.effort=low", "+responses_create_params.user=me"),
        f"++policy_model.responses_api_models.openai_model.dialect={dialect}",
    )
    assert called.status == 0, called.err
    assert "1 rollout, written to runs/letters-rows-m.jsonl" in called.err
    (body,) = endpoint.asked("first letter")
    assert (body["temperature"], body["top_p"], body["user"]) == (0.5, 0.9, "me")
    if dialect == "responses":
        assert (body["max_output_tokens"], body["reasoning"]) == (7, {"effort": "low"})
    else:
        assert (body["max_tokens"], body["reasoning_effort"]) == (7, "low")
    (line,) = (here / "runs" / "letters-rows-m.jsonl").read_text().splitlines()
    assert json.loads(line)["responses_create_params"]["temperature"] == 0.5


def read(*overrides: str, sampling: tuple[str, ...] = (), **flags: Any) -> tuple[dict[str, Any], list[str]]:
    return read_sampling(overrides, Sampling(sampling=sampling, **flags))


def test_all_ways_end_in_one_set_of_parameters() -> None:
    params, others = read("+responses_create_params.store=false", "a.b=1", sampling=("user=me",), top_p=0.5)
    assert params == {"store": False, "user": "me", "top_p": 0.5}
    assert others == ["a.b=1"]
    assert read("responses_create_params.temperature=1.0", temperature=1.0) == ({"temperature": 1.0}, [])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"sampling": ("temperature=1",), "temperature": 0.5}, "temperature is 1.0 with --sampling and 0.5 with"),
        ({"sampling": ("max_output_tokens=1",), "max_tokens": 2}, "max_output_tokens is 1 with --sampling and 2 with"),
        ({"sampling": ("seed=1",)}, "--num-repeats-add-seed gives each repeat its own seed"),
        ({"sampling": ("temprature=1",)}, "did you mean temperature"),
        ({"sampling": ("temperature=hot",)}, "temperature"),
        ({"sampling": ("temperature",)}, "= is missing"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises((UsageError, ConfigError), match=problem):
        read(**arguments)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"resources": Path("a/capitals.py")}, "capitals-rows"),
        ({"config": [Path("x/math.yaml"), Path("model.yaml")]}, "math-model-rows"),
        ({"config": [Path("rows.yaml")]}, "rows"),
        ({"config": [Path("x/math/config.yaml")], "resources": Path("fair/worker.py")}, "math-fair-rows"),
        ({"model": "openai/gpt 4.1"}, "rows-openai-gpt-4.1"),
        ({"input": Path("data/rows.jsonl.gz")}, "rows"),
        ({"input": Path("..")}, "run"),
        ({"input": Path("r" * 300)}, "r" * 150),
    ],
)
def test_an_output_has_a_name_made_of_the_other_arguments(arguments: dict[str, Any], name: str) -> None:
    given: dict[str, Any] = {"input": Path("rows.jsonl"), "config": (), "resources": None, "model": None} | arguments
    assert default_output(**given) == Path("runs") / f"{name}.jsonl"
