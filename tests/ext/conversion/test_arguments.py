from __future__ import annotations

import json

import pytest

from gymq.ext.conversion.arguments import UNPARSED_ARGUMENTS, arguments_object, arguments_text, sent_arguments


@pytest.mark.parametrize(
    "written",
    ['{"text": "mkdir -p /tmp', "not JSON", "[1]", '"text"', "null", '{"a": 1}{"a": 1}', '{"a": NaN}', "[" * 100_000],
)
def test_other_text_than_an_object_is_sent_as_one_that_holds_it(written: str) -> None:
    assert json.loads(sent_arguments(written)) == {UNPARSED_ARGUMENTS: written}
    assert arguments_text(arguments_object(written)) == written


@pytest.mark.parametrize("written", ["{}", '{ "a":1 }', '{"a": "\\ud83d"}'])
def test_an_object_is_sent_as_the_model_wrote_it(written: str) -> None:
    assert json.loads(sent_arguments(written)) == json.loads(written)


@pytest.mark.parametrize("written", [None, "", " \n"])
def test_no_text_is_no_arguments(written: str | None) -> None:
    assert sent_arguments(written) == "{}"
    assert arguments_object(written) == {}
