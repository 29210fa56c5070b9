"""Requests of programs: what is dropped, completed and refused."""

import pytest

from gymq.ext.conversion.foreign import foreign_params
from gymq.responses import InvalidRequest, validate_params


def test_a_foreign_request_loses_what_the_api_does_not_have_with_one_warning_for_each_name(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymq.responses.errors._reported", set())
    body = {
        "input": "hi",
        "prompt_cache_key": "k",
        "client_metadata": {"a": 1},
        "tools": [{"type": "function", "name": "f", "mood": "calm"}, {"type": "custom", "name": "patch"}],
    }
    for _ in range(2):
        params = validate_params(foreign_params(body))
    assert params == {
        "input": "hi",
        "prompt_cache_key": "k",
        "tools": [
            {"type": "function", "name": "f", "strict": None, "parameters": {"type": "object", "properties": {}}},
            {"type": "custom", "name": "patch"},
        ],
    }
    assert sorted(record.getMessage().partition(" is")[0] for record in caplog.records) == [
        "the field 'mood' of function tools",
        "the request's field 'client_metadata'",
    ]


def test_a_foreign_request_that_does_not_fit_is_still_refused() -> None:
    with pytest.raises(InvalidRequest, match="temperature"):
        validate_params(foreign_params({"input": "hi", "temperature": "hot", "tools": "none"}))
