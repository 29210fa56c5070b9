"""NeMo Gym's package from the package index, fetched once into a cache."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CURRENT = "0.4.0"
FIRST = "0.2.1"  # the oldest state that is published; of April 2026
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gymq-tests"


def fetched(version: str) -> Path:
    """Return the folder with the unpacked package; skip the test if it cannot be fetched."""
    folder = _CACHE / f"nemo-gym-{version}"
    if not folder.is_dir():
        wheels = _CACHE / "wheels"
        what = [f"nemo-gym=={version}", "--no-deps", "--only-binary=:all:", "--python-version=3.13"]
        command = [sys.executable, "-m", "pip", "download", "--quiet", *what, f"--dest={wheels}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            reason = f"nemo-gym {version} cannot be fetched from the package index: {done.stderr.strip()[-200:]}"
            pytest.skip(reason, allow_module_level=True)
        unpacked = _CACHE / f"nemo-gym-{version}.{os.getpid()}"
        with zipfile.ZipFile(next(wheels.glob(f"nemo_gym-{version}-*.whl"))) as wheel:
            wheel.extractall(unpacked)
        try:
            unpacked.rename(folder)
        except OSError:  # another process was first
            if not folder.is_dir():
                raise
    return folder
