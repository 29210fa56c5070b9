"""Libraries whose environments gymq plays. `make test-hubs` and `make test-verifiers` install them, each its own."""

import importlib.util
import os

import pytest

NEEDED = {
    "test_episodes.py": ("make test-hubs", ("openenv", "textarena")),
    "test_tasksets.py": ("make test-verifiers", ("renderers", "textarena", "verifiers")),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("GYMQ_REQUIRE_HUBS"):
        return
    for item in items:
        command, packages = NEEDED.get(item.path.name, ("", ()))
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        if missing and item.path.parent.name == "hubs":
            item.add_marker(pytest.mark.skip(f"needs {' and '.join(missing)}: {command}"))
