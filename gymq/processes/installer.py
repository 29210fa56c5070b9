"""Installers of packages, such as pip and npm, run to their end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence

from gymq.errors import GymqError

_LAST_LINES = 5  # of the output of an installer
_WARNINGS = ("warning", "npm warn")
_LOOK_EVERY_S = 0.2


class InstallFailed(GymqError):
    """Packages were not installed; one sentence with the last lines of the installer's output."""


def install(
    command: Sequence[str],
    *,
    shown: str,
    timeout_s: float,
    variables: Mapping[str, str] | None = None,
    cancelled: threading.Event | None = None,
) -> None:
    """Run an installer of packages.

    Args:
        shown: the command as errors show it, such as `pip install regex`.
        timeout_s: limit on its run, in seconds.
        variables: environment variables in addition to those of this process.
        cancelled: set to end it.

    Raises:
        InstallFailed: it failed, took too long, or was cancelled.
    """
    env = {**os.environ, **(variables or {})}
    give_up = time.monotonic() + timeout_s
    # A session of its own: pip and npm have processes of their own, which end with it.
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=env,
        start_new_session=True,
    )
    while True:
        try:
            _, said = process.communicate(timeout=_LOOK_EVERY_S)
            break
        except subprocess.TimeoutExpired:
            is_cancelled = cancelled is not None and cancelled.is_set()
            if not is_cancelled and time.monotonic() < give_up:
                continue
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            ended = "was cancelled" if is_cancelled else f"did not finish within {timeout_s:g} s"
            raise InstallFailed(f"`{shown}` {ended}") from None
    if process.returncode != 0:
        lines = said.strip().splitlines()[-_LAST_LINES:]
        errors = [line for line in lines if not line.lower().startswith(_WARNINGS)] or lines
        raise InstallFailed(f"`{shown}` failed: {' '.join(' '.join(errors).split())}")
