"""Coding agents that are installed at their first use, beside the tests."""

import os
from pathlib import Path

import pytest
from gymq.workers.agents.program_agent.installed_harness import install

ROOT = Path(__file__).parents[3]
REQUIRED = "GYMQ_REQUIRE_HARNESSES"
"""Where it is 1, coding agents are installed and run; one that cannot be installed fails its tests."""


@pytest.fixture
async def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a harness that is there."""
    if os.environ.get(REQUIRED) != "1":
        pytest.skip(f"{request.param} runs in `make test-in NAME=harnesses`")
    monkeypatch.chdir(ROOT)
    await install(request.param)
    return str(request.param)
