"""axe-core, which finds what keeps people from using a page; its package is fetched when a test needs it."""

import functools
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import REQUIRED, Page

PACKAGE = "axe-core@4"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
FETCH_S = 600.0


@functools.cache
def _source() -> str:
    """The script of axe-core; the test is skipped where it cannot be had."""
    npm = shutil.which("npm")
    if npm is None:
        _cannot("npm is not installed")
    with tempfile.TemporaryDirectory(prefix="gymq-axe-") as folder:
        command = [str(npm), "pack", PACKAGE, "--silent", "--pack-destination", folder]
        packed = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, env=os.environ, check=False)
        if packed.returncode:
            _cannot(f"npm cannot fetch {PACKAGE}: {packed.stderr.strip()[-300:]}")
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as package:
            script = package.extractfile("package/axe.min.js")
            assert script is not None
            return script.read().decode()


def _cannot(why: str) -> None:
    (pytest.fail if REQUIRED else pytest.skip)(why)


async def violations(page: Page) -> list[str]:
    """What axe finds in the page that is open: a rule, and the elements that break it."""
    await page.value(f"{_source()}; undefined")
    found: Any = await page.value(f"axe.run(document, {{runOnly: {RULES}}}).then((result) => result.violations)")
    return [
        f"{one['id']}: {node['html'][:160]} ({node['failureSummary'][:300]})"
        for one in found
        for node in one["nodes"][:3]
    ]
