"""Builds the images of the instances beside this file, and writes their rows: `python examples/swe/build.py`.

A row has the members of SWE-bench, and says itself how its tests are run and read.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
INSTANCES = sorted((HERE / "instances").iterdir())
DATASET = "gymq/demo"

EVAL_SCRIPT = """#!/bin/bash
set -uxo pipefail
cd /testbed
git apply -v - <<'END_OF_TESTS'
{tests_patch}END_OF_TESTS
: '>>>>> Start Test Output'
python3 -m pytest -rA -p no:cacheprovider tests
: '>>>>> End Test Output'
"""


def image_of(instance: str) -> str:
    """The tag of an instance's image."""
    return f"gymq-swe/{instance.replace('__', '-')}:latest"


def build(instance: str) -> None:
    """Build an instance's image.

    Raises:
        CalledProcessError: docker could not.
    """
    command = ["docker", "build", "--quiet", "--network", "host", "--build-arg", f"INSTANCE={instance}"]
    subprocess.run([*command, "--tag", image_of(instance), str(HERE)], check=True, stdout=sys.stderr)


def row_of(folder: Path) -> dict[str, Any]:
    """A row of SWE-bench's form."""
    tests_patch = (folder / "tests.patch").read_text(encoding="utf-8")
    return {
        "instance_id": folder.name,
        "repo": folder.name.rpartition("-")[0].replace("__", "/"),
        "version": "1",
        "base_commit": "HEAD",
        "problem_statement": (folder / "issue.md").read_text(encoding="utf-8").strip(),
        "patch": (folder / "solution.patch").read_text(encoding="utf-8"),
        "test_patch": tests_patch,
        **json.loads((folder / "tests.json").read_text(encoding="utf-8")),
        "image": image_of(folder.name),
        "eval_script": EVAL_SCRIPT.format(tests_patch=tests_patch),
        "log_parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
    }


if __name__ == "__main__":
    for place in INSTANCES:
        build(place.name)
        print(json.dumps(row_of(place)))
