"""The instances of examples/swe: their images and rows."""

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "swe"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt"


def _build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("examples_swe_build", EXAMPLES / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def needs_docker() -> None:
    """Skip where no engine runs."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs a docker engine")


def instance(name: str) -> dict[str, Any]:
    """A row, once its image is there. Its prompt is the agent's."""
    needs_docker()
    build = _build()
    image = subprocess.run(["docker", "image", "inspect", build.image_of(name)], capture_output=True, check=False)
    if image.returncode != 0:
        build.build(name)
    return {"responses_create_params": {"input": []}, **build.row_of(EXAMPLES / "instances" / name)}


def repair(row: dict[str, Any]) -> list[str]:
    """The commands of a model that knows the solution."""
    apply = f"git apply - <<'END_OF_PATCH'\n{row['patch']}END_OF_PATCH"
    return ["ls", apply, "git diff > patch.txt", SUBMIT]
