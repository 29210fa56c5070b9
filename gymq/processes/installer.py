"""Installers of packages, such as pip and npm, run to their end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from gymq.errors import GymqError

_LAST_LINES = 5  # of the output of an installer
_WARNINGS = ("warning", "npm warn")


class InstallFailed(GymqError):
    """Packages were not installed; one sentence with the last lines of the installer's output."""


def install(
    command: Sequence[str], *, shown: str, timeout_s: float, variables: Mapping[str, str] | None = None
) -> None:
    """Run an installer of packages.

    Args:
        shown: the command as errors show it, such as `pip install regex`.
        timeout_s: limit on its run, in seconds.
        variables: environment variables in addition to those of this process.

    Raises:
        InstallFailed: it failed, or took too long.
    """
    env = {**os.environ, **(variables or {})}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout_s, env=env, check=False
        )
    except subprocess.TimeoutExpired:
        raise InstallFailed(f"`{shown}` did not finish within {timeout_s:g} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()[-_LAST_LINES:]
        errors = [line for line in lines if not line.lower().startswith(_WARNINGS)] or lines
        raise InstallFailed(f"`{shown}` failed: {' '.join(' '.join(errors).split())}")
