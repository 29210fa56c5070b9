"""A Python that runs in any container of this machine's kind: a copy of one here, with its libraries and its loader.

An image may have no Python, an old one, or another C library; that of the image stays the one that programs find.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gymq.errors import GymqError
from gymq.processes import installer

MINIMUM = (3, 12)
_VERSIONS = ("3.13", "3.12", "3.14")
_LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
_LEFT_OUT = ("site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo", "config-*")
_PROBE_S = 60.0
_PROBE = """
import json, os, sys, sysconfig
print(json.dumps({
    "version": sys.version_info[:2],
    "executable": os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
    "stdlib": sysconfig.get_path("stdlib"),
    "modules": sysconfig.get_config_var("DESTSHARED"),
}))
"""
# `--argv0` makes it the interpreter that `sys.executable` names, so that it finds its modules from here on.
_WRAPPER = """#!/bin/sh
here="${{0%/*}}/.."
exec "$here/libraries/{loader}" --inhibit-cache --library-path "$here/libraries" --argv0 "$0" \\
  "$here/libexec/python3" "$@"
"""


class NoPortablePython(GymqError):
    """No Python here can be copied; one sentence."""


def make(folder: Path, requirements: Path, *, install_s: float, cancelled: threading.Event) -> None:
    """Copy a Python of this machine into a folder, and install packages for it; `folder/bin/python3` runs it.

    Packages come as wheels only: nothing of them is run here.

    Args:
        requirements: a file that lists every package, with its version.
        install_s: limit on the installer's run, in seconds.
        cancelled: set to end it.

    Raises:
        NoPortablePython: this machine has none that is new enough, or the copy does not run.
        UsageError: the packages cannot be had.
    """
    loader = Path(_LOADERS.get(platform.machine(), "/nonexistent"))
    if not loader.is_file():
        raise NoPortablePython("a Python for containers needs Linux with the GNU C library, on x86_64 or aarch64")
    found = _find()
    version = "python{}.{}".format(*found["version"])
    library = folder / "lib" / version
    shutil.copytree(found["stdlib"], library, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    shutil.copytree(found["modules"], library / "lib-dynload", dirs_exist_ok=True)
    for name in ("bin", "libexec", "libraries"):
        (folder / name).mkdir()
    shutil.copy(found["executable"], folder / "libexec" / "python3")
    installer.install(
        [
            *(sys.executable, "-P", "-m", "pip", "--python", found["executable"], "install", "--quiet", "--no-input"),
            *(
                "--only-binary",
                ":all:",
                "--no-deps",
                "--target",
                str(library / "site-packages"),
                "-r",
                str(requirements),
            ),
        ],
        shown=f"pip install -r {requirements.name}",
        timeout_s=install_s,
        cancelled=cancelled,
        variables={"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    shutil.copy(loader, folder / "libraries")
    for file in _needed(loader, folder):
        shutil.copy(file, folder / "libraries" / file.name)
    wrapper = folder / "bin" / "python3"
    wrapper.write_text(_WRAPPER.format(loader=loader.name), encoding="utf-8")
    wrapper.chmod(0o755)
    _check(wrapper)


def _find() -> dict[str, Any]:
    """Return what `_PROBE` prints of the first interpreter that is new enough."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found_here = [sys.executable]
    found_here += [path for version in _VERSIONS if (path := shutil.which(f"python{version}")) is not None]
    found_here += [str(path) for version in _VERSIONS for path in pyenv.glob(f"versions/{version}.*/bin/python3")]
    for python in found_here:
        try:
            # A shim of pyenv may be there without the version.
            done = subprocess.run(
                [python, "-I", "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_S, check=True
            )
            found: dict[str, Any] = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            continue
        if tuple(found["version"]) >= MINIMUM:
            return found
    wanted = ".".join(map(str, MINIMUM))
    raise NoPortablePython(f"it needs Python {wanted} or later, which is not installed here; put it on the PATH")


def _needed(loader: Path, folder: Path) -> set[Path]:
    """Return the libraries of this machine that the programs of a folder are linked with."""
    needed: set[Path] = set()
    for program in _programs(folder):
        # Unlike `ldd`, it runs no loader that the file names.
        done = subprocess.run([loader, "--list", program], capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            _, arrow, place = line.partition(" => ")
            path = Path(place.rpartition(" (")[0])
            if arrow and path.is_absolute() and not path.is_relative_to(folder.absolute()):
                needed.add(path)
    return needed


def _programs(folder: Path) -> Iterator[Path]:
    yield folder / "libexec" / "python3"
    for path in folder.rglob("*.so*"):
        if path.is_file() and not path.is_symlink():
            yield path


def _check(python: Path) -> None:
    """Run the copy once."""
    command = [str(python.absolute()), "-I", "-c", "import ctypes, hashlib, sqlite3, ssl, zlib"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_S, check=False, env={})
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"it ends with status {done.returncode}"]
        raise NoPortablePython(f"the copy of Python {python} does not run: {words[-1]:.300}")
