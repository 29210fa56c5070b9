"""Processes of verifiers, for the tests of a module."""

from collections.abc import Iterator

import pytest

from gymq.processes import KillableProcesses


@pytest.fixture(scope="module")
def kept_processes() -> Iterator[KillableProcesses]:
    """Processes that all tests of a module share: what they import takes longer than most of what they compute."""
    kept = KillableProcesses()
    yield kept
    kept.close()
