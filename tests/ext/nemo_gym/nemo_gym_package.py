"""NeMo Gym's package from the package index, fetched or installed once into a cache."""

import os
import shutil
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


def installed(version: str) -> Path:
    """Return the folder of the programs of an environment that has the package; skip the test if there can be none."""
    folder = _CACHE / f"nemo-gym-env-{version}"
    if not folder.is_dir():
        python = _python("3.13")  # the only one that it installs on
        if python is None:
            pytest.skip("Python 3.13, which nemo-gym needs, is not installed here")
        new = _CACHE / f"nemo-gym-env-{version}.{os.getpid()}"
        pip = [str(new / "bin" / "python"), "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
        for command in ([python, "-m", "venv", str(new)], [*pip, f"nemo-gym=={version}"]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                shutil.rmtree(new, ignore_errors=True)
                pytest.skip(f"nemo-gym {version} cannot be installed: {done.stderr.strip()[-200:]}")
        folder.symlink_to(new.name)  # an environment cannot be moved
    return folder / "bin"


def _python(version: str) -> str | None:
    """Return a Python of that version that works on this machine."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for found in (shutil.which(f"python{version}"), *sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))):
        if found is None:
            continue
        said = subprocess.run([found, "--version"], capture_output=True, text=True)  # a shim may be there without it
        if said.stdout.startswith(f"Python {version}"):
            return str(found)
    return None
