from pathlib import Path

import pytest
from gymq.workers.resources.workplace_assistant.tables import Tables, load_tables

SMALL = Path(__file__).parents[4] / "tests" / "cases" / "fixtures" / "workplace_assistant"


@pytest.fixture
def tables() -> Tables:
    """A small office: 8 mails, 7 events, 6 tasks, 5 customers, 14 visits."""
    return load_tables(SMALL).copy()


@pytest.fixture
def folder() -> Path:
    """Where the small office's tables are."""
    return SMALL
