from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gymq.workers.models.local_vllm_model.options import LocalVLLMOptions
from gymq.workers.models.local_vllm_model.serve_args import OWNED, PLUGIN, arguments, environment
from gymq.workers.models.local_vllm_model.worker import LocalVLLMModel

import gymq


def options(**changed: Any) -> LocalVLLMOptions:
    given: dict[str, Any] = {"model": "org/model", "return_token_id_information": True, "uses_reasoning_parser": False}
    return LocalVLLMOptions(**given | changed)


def after(flag: str, parts: list[str]) -> str:
    return parts[parts.index(flag) + 1]


def test_the_model_is_served_under_the_name_that_requests_carry():
    parts = arguments(options())
    assert (after("--model", parts), after("--served-model-name", parts)) == ("org/model", "org/model")


def test_any_argument_is_reached_in_the_form_that_vllm_serve_takes():
    kwargs = {
        "tensor_parallel_size": 2,
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "hf_overrides": {"rope_theta": 1e6},
        "allowed_origins": ["a", "b"],
        "quantization": None,
        "load_format": "dummy",
    }
    parts = arguments(options(vllm_serve_kwargs=kwargs))
    assert after("--tensor-parallel-size", parts) == "2"
    assert "--enforce-eager" in parts
    assert "--no-enable-prefix-caching" in parts
    assert after("--hf-overrides", parts) == '{"rope_theta": 1000000.0}'
    assert parts[parts.index("--allowed-origins") + 1 :][:2] == ["a", "b"]
    assert "--quantization" not in parts
    assert after("--load-format", parts) == "dummy"


@pytest.mark.parametrize(
    ("kwargs", "policy"), [({}, "priority"), ({"scheduling-policy": "fcfs"}, "fcfs")], ids=["default", "given"]
)
def test_the_engine_heeds_the_places_of_urgent_calls_unless_told_otherwise(kwargs: dict[str, Any], policy: str):
    assert after("--scheduling-policy", arguments(options(vllm_serve_kwargs=kwargs))) == policy


def test_on_ray_each_rank_is_an_engine_of_its_own():
    parts = arguments(options(vllm_serve_kwargs={"data_parallel_size": 4, "tensor_parallel_size": 2}, ray={}))
    assert "--data-parallel-size" not in parts
    assert after("--distributed-executor-backend", parts) == "ray"


def test_variables_of_the_configuration_win_over_those_of_the_process(tmp_path: Path):
    given = options(vllm_serve_env_vars={"VLLM_LOGGING_LEVEL": "INFO", "N": 1}, hf_home=tmp_path, hf_token="secret")
    wanted = environment(given, {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "0"}, "/sockets")
    assert wanted == {
        "VLLM_LOGGING_LEVEL": "INFO",
        "VLLM_RPC_BASE_PATH": "/sockets",
        "HF_HOME": str(tmp_path),
        "HF_TOKEN": "secret",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "N": "1",
        OWNED: "1",
    }


def test_vllm_forks_only_where_it_is_asked_to():
    assert environment(options(), {}, "/sockets")["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert "VLLM_WORKER_MULTIPROC_METHOD" not in environment(
        options(), {"VLLM_WORKER_MULTIPROC_METHOD": "fork"}, "/sockets"
    )


@pytest.mark.parametrize(("listed", "wanted"), [("", PLUGIN), ("a,b", f"a,b,{PLUGIN}"), (f"a,{PLUGIN}", None)])
def test_a_list_of_plugins_gets_ours_too(listed: str, wanted: str | None):
    assert environment(options(), {"VLLM_PLUGINS": listed}, "/sockets").get("VLLM_PLUGINS") == wanted


def test_debug_makes_vllm_talk():
    assert environment(options(debug=True), {"VLLM_LOGGING_LEVEL": "ERROR"}, "/s")["VLLM_LOGGING_LEVEL"] == "DEBUG"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"vllm_serve_kwargs": {"tensor_parallel_size": 0}}, "vllm_serve_kwargs.tensor_parallel_size: 0 is not a pos"),
        ({"vllm_serve_kwargs": {"model": "x"}}, "vllm_serve_kwargs.model: not here; it is the option model"),
        ({"vllm_serve_kwargs": {"port": 1}}, "vllm_serve_kwargs.port: not here; nothing listens anywhere"),
        ({"ray": {}, "base_url": "http://localhost/v1"}, "ray: nothing is started when base_url names running engines"),
        ({"ray": {}, "vllm_serve_kwargs": {"enable_expert_parallel": True}}, "engines that Ray places share no expert"),
        ({"ray": {"strategy": "wherever"}}, "ray.strategy: must be 'strict', 'pack' or 'spread'"),
        ({"base_url": "localhost"}, "base_url: expected a URL such as"),
    ],
)
def test_options_that_do_not_fit_are_told(changed: dict[str, Any], message: str):
    given: dict[str, Any] = {"model": "org/model", "return_token_id_information": True, "uses_reasoning_parser": False}
    with pytest.raises(gymq.OptionsError) as caught:
        LocalVLLMModel(given | changed, name="policy_model")
    assert message in str(caught.value)
