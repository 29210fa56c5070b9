"""Source archives of reference libraries, from PyPI, in a cache outside of the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

ARCHIVES = {
    "math-verify": "0.8.0",
    "jsonschema": "4.26.0",
    "bfcl-eval": "2025.6.8",
    "sqlglot": "30.30.0",
}


def cache_folder() -> Path:
    """`$GYMQ_REFERENCES`, or a folder in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gymq" / "references"
    return Path(os.environ.get("GYMQ_REFERENCES") or default)


def unpacked(package: str) -> Path:
    """The folder of a package's source, downloaded if it is not there yet.

    Raises:
        subprocess.CalledProcessError: pip cannot download it, and has said why.
    """
    version = ARCHIVES[package]
    folder = cache_folder()
    wanted = folder / f"{package}-{version}"
    if not wanted.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package]
        subprocess.run([*pip, "--dest", str(folder), f"{package}=={version}"], check=True)
        (archive,) = folder.glob(f"{package.replace('-', '[-_]')}-{version}.tar.gz")
        partial = folder / f"{wanted.name}.partial"
        with tarfile.open(archive) as tar:
            tar.extractall(partial, filter="data")
        (content,) = partial.iterdir()
        content.rename(wanted)
        partial.rmdir()
    return wanted
