"""The instances of examples/swe: their images and rows."""

import functools
import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples" / "swe"
BASE = "python:3.13-slim"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt"


def _build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("examples_swe_build", EXAMPLES / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def _why_not() -> str | None:
    """Why no container can be started here."""
    if shutil.which("docker") is None or _docker("info"):
        return "needs a docker engine"
    if _docker("image", "inspect", BASE) and _docker("pull", "--quiet", BASE):
        return f"needs the image {BASE}, which cannot be pulled"
    return None


def _docker(*arguments: str) -> int:
    return subprocess.run(["docker", *arguments], capture_output=True, check=False).returncode


def needs_docker() -> None:
    """Skip where no container can be started."""
    if (why_not := _why_not()) is not None:
        pytest.skip(why_not)


def instance(name: str) -> dict[str, Any]:
    """A row, once its image is there. Its prompt is the agent's."""
    needs_docker()
    build = _build()
    if _docker("image", "inspect", build.image_of(name)):
        build.build(name)
    return {"responses_create_params": {"input": []}, **build.row_of(EXAMPLES / "instances" / name)}


def repair(row: dict[str, Any]) -> list[str]:
    """The commands of a model that knows the solution."""
    apply = f"git apply - <<'END_OF_PATCH'\n{row['patch']}END_OF_PATCH"
    return ["ls", apply, "git diff > patch.txt", SUBMIT]
