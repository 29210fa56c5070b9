"""Fixtures for the tests of all models that ask an endpoint: a fake endpoint, and a clock that does not wait."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from gymq.workers.models.openai_model import endpoint
from gymq.workers.models.openai_model.tests.mock_server import MockServer


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
async def server() -> AsyncIterator[MockServer]:
    async with MockServer() as server:
        yield server


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between tries, in seconds; they are skipped."""
    seen: list[float] = []

    async def sleep(seconds: float) -> None:
        seen.append(seconds)

    monkeypatch.setattr(endpoint, "sleep", sleep)
    return seen
