"""Sampling parameters: how they are split from overrides, and what they may be."""

import pytest

from gymq.config import ConfigError
from gymq.config.sampling import check_sampling, sampling_overrides


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_overrides_of_the_parameters_are_split_off_with_typed_values(prefix):
    given = [
        f"{prefix}responses_create_params.temperature=0.7",
        "exam.x=1",
        f"{prefix}responses_create_params.reasoning.effort=high",
        "++responses_create_paramz.top_p=1",
    ]
    assert sampling_overrides(given) == (
        {"temperature": 0.7, "reasoning": {"effort": "high"}},
        ["exam.x=1", "++responses_create_paramz.top_p=1"],
    )


def test_a_mapping_is_merged_with_single_parameters_in_order():
    values, _ = sampling_overrides(
        ["+responses_create_params={temperature: 1, top_p: 0.5}", "++responses_create_params.temperature=2"]
    )
    assert values == {"temperature": 2, "top_p": 0.5}


def test_without_such_overrides_there_are_no_parameters():
    assert sampling_overrides(["a=1"]) == ({}, ["a=1"])
    assert sampling_overrides(["++responses_create_params=null"]) == ({}, [])


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("+responses_create_params.temperature", "= is missing"),
        ("+responses_create_params=hot", "must be a mapping"),
        ("+responses_create_params.temperature=[1", "is missing"),
    ],
)
def test_an_override_that_cannot_be_read_is_refused(override, problem):
    with pytest.raises(ConfigError, match=problem):
        sampling_overrides([override])


def test_values_get_the_type_that_a_request_needs():
    given = {"temperature": "0.5", "max_tokens": 12.0, "metadata": {"extra_body": "{}"}, "top_p": 1}
    checked = check_sampling(given)
    assert checked == {"temperature": 0.5, "max_output_tokens": 12, "metadata": {"extra_body": "{}"}, "top_p": 1}
    assert isinstance(checked["max_output_tokens"], int)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temprature": 1}, "no parameter temprature; did you mean temperature?"),
        ({"max_token": 1}, "did you mean max_tokens"),
        ({"top_k": 20}, "extra_body"),
        ({"temperature": "hot"}, "responses_create_params.temperature: Expected `float`, got `str`"),
        ({"temperature": float("nan")}, "must be a finite number"),
        (
            {"max_tokens": 1, "max_output_tokens": 2},
            "responses_create_params.max_output_tokens: given twice, also as max_tokens",
        ),
        ({"reasoning": {"effort": 3}}, "responses_create_params.reasoning.effort"),
        ({"stream": True}, "responses_create_params.stream"),
    ],
)
def test_what_no_request_can_have_is_refused(values, message):
    with pytest.raises(ConfigError) as refused:
        check_sampling(values)
    assert message in str(refused.value)
