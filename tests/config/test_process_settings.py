"""Top-level settings that are in effect for all processes of the workers."""

from typing import Any

import pytest

from gymq.config import ConfigError, fingerprint
from gymq.config.process_settings import is_enabled, layout, process_variables
from gymq.config.unknown import check_keys
from gymq.protocol.instances import PROFILES_VARIABLE

from .conftest import ENV


@pytest.fixture(autouse=True)
def no_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)


@pytest.mark.parametrize(
    ("tree", "variables"),
    [
        ({}, {}),
        ({"ray_head_node_address": "10.0.0.1:6379"}, {"RAY_ADDRESS": "10.0.0.1:6379"}),
        ({"profiling_enabled": True, "profiling_results_dirpath": "/p"}, {PROFILES_VARIABLE: "/p"}),
        ({"profiling_enabled": False, "profiling_results_dirpath": "/p"}, {}),
        ({"observability_enabled": True}, {"OTEL_TRACES_EXPORTER": "otlp"}),
        ({"observability_enabled": False, "ray_head_node_address": None}, {}),
    ],
)
def test_a_setting_becomes_a_variable_of_all_workers(tree: dict[str, Any], variables: dict[str, str]) -> None:
    assert process_variables(tree) == variables


def test_the_layout_of_the_processes_changes_nothing_about_a_run() -> None:
    assert [layout({}), layout({"layout": "cells"})] == ["kinds", "cells"]
    assert fingerprint({"layout": "cells"}) == fingerprint({})


def test_the_exporter_that_the_environment_names_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert process_variables({"observability_enabled": True}) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profiling_enabled: 3", "profiling_enabled must be true or false, not 3"),
        ("ray_head_node_address: [a]", "ray_head_node_address must be text"),
        ("layout: rows", "layout must be kinds or cells, not 'rows'"),
        ("layout: [cells]", "layout must be kinds or cells"),
        ("token_id_capture: {enabled: 1}", "token_id_capture must be true, false or a mapping with `enabled`"),
        (
            "token_id_capture: {enabled: true, external_staging: true, external_staging_backend: vllm_worker}",
            r"external_staging is not supported: .*; set token_capture\.enabled to false$",
        ),
    ],
)
def test_a_value_that_cannot_be_in_effect_is_refused(
    load_files: Any, files: dict[str, str], text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_keys(load_files({**files, "x.yaml": text}, env=ENV))


def test_settings_in_effect_are_accepted_without_a_warning(load_files: Any, files: dict[str, str]) -> None:
    text = (
        "token_id_capture: {enabled: true, all_agents: true}\nprofiling_enabled: true\nnum_samples_in_parallel: 8\n"
        "layout: cells"
    )
    assert not is_enabled({"enabled": False, "external_staging": True})
    assert check_keys(load_files({**files, "x.yaml": text}, env=ENV)) == []
