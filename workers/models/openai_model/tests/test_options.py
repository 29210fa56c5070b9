"""Options that cannot work are refused before anything is sent, and keys are not shown."""

from __future__ import annotations

from typing import Any

import pytest
from gymq.workers.models.openai_model.tests.conftest import KEY
from gymq.workers.models.openai_model.worker import OpenAIModel

import gymq

GOOD = {"openai_base_url": "https://api.openai.com/v1", "openai_api_key": KEY, "openai_model": "m"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"openai_base_url": "api.openai.com/v1"}, "openai_base_url: expected a URL"),
        ({"openai_base_url": "ftp://example.com"}, "openai_base_url: expected a URL"),
        ({"openai_base_url": "http://"}, "openai_base_url: expected a URL"),
        ({"openai_base_url": "http://host:99999/v1"}, "openai_base_url: expected a URL"),
        ({"openai_base_url": "http://user:pass@host/v1"}, "openai_base_url: the URL must not have a user"),
        ({"openai_base_url": "http://host/v1?api-key=1"}, "openai_base_url: the URL must not have a user, a query"),
        ({"openai_api_key": ""}, "openai_api_key: empty"),
        ({"openai_api_key": f"{KEY}\n"}, "openai_api_key: empty, or characters"),
        ({"openai_default_headers": {"X Y": "1"}}, "openai_default_headers: 'X Y'"),
        ({"openai_default_headers": {"X": "a\r\nb"}}, "openai_default_headers: the value of X"),
        ({"dialect": "messages"}, "dialect: "),
        ({"max_concurrent_requests": 0}, "max_concurrent_requests: "),
        ({"model": "m"}, "no option model"),
    ],
)
def test_what_cannot_work_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(gymq.OptionsError) as caught:
        OpenAIModel({**GOOD, **change}, name="policy_model")
    assert str(caught.value).startswith(f"policy_model: {sentence}")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("missing", GOOD)
def test_what_is_needed_is_demanded(missing: str) -> None:
    options = {name: value for name, value in GOOD.items() if name != missing}
    with pytest.raises(gymq.OptionsError, match=missing):
        OpenAIModel(options)


async def test_neither_key_nor_header_values_are_shown() -> None:
    worker = OpenAIModel({**GOOD, "openai_default_headers": {"X-Key": "another-secret"}})
    await worker.start()
    shown = f"{worker!r} {worker.options!r} {worker.options} {worker.options.model_dump_json()} {worker._endpoint!r}"
    await worker.stop()
    assert KEY not in shown
    assert "another-secret" not in shown
