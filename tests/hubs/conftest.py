"""Libraries whose environments gymq plays. `make test-in NAME=hubs` installs them; elsewhere the tests are skipped."""

import importlib.util
import os

import pytest

NEEDED = {
    "test_episodes.py": ("openenv", "textarena"),
    "test_inspect_tasks.py": ("inspect_ai", "inspect_evals"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("GYMQ_REQUIRE_HUBS"):
        return
    for item in items:
        needed = NEEDED.get(item.path.name, ())
        if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
            item.add_marker(pytest.mark.skip(f"needs {' and '.join(missing)}: make test-in NAME=hubs"))
