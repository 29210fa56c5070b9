"""Python environments for workers whose libraries do not get along with those of others (`isolated: true`).

Such an environment holds what the worker requires; for everything else, gymq among it, Python looks into the
environment that made it. So two workers may need different versions of a library, and each environment is small.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import shutil
import sys
import sysconfig
import threading
import venv
from collections.abc import Sequence
from pathlib import Path

from gymq.errors import UsageError
from gymq.execution.loading.registry import spec_of
from gymq.processes import installer
from gymq.protocol.instances import Kind

REQUIREMENTS_FILE = "requirements.txt"


async def python_for(kind: Kind, implementation: str, folder: Path, packages: Sequence[str] = ()) -> str:
    """Return the Python interpreter of a worker's own environment, which is created if needed.

    The environment has the packages that `requirements.txt` beside the worker lists, or else the extra of gymq with the
    worker's name.

    Args:
        folder: folder that holds the environments.
        packages: what it has besides, as pip is asked for it.

    Raises:
        UsageError: the worker does not declare its requirements, or they cannot be installed.
    """
    wanted, content = _requirements(kind, implementation)
    wanted += packages
    key = hashlib.sha256("\n".join([sys.executable, sys.version, *wanted, content]).encode()).hexdigest()[:12]
    place = folder / f"{Path(implementation.partition(':')[0]).stem}-{key}"
    return await installer.in_thread(_ensure, place.absolute(), wanted)


def _requirements(kind: Kind, implementation: str) -> tuple[list[str], str]:
    """Return the requirements for pip, and the content of the file that this names."""
    file = _file_of(kind, implementation)
    listed = None if file is None else file.parent / REQUIREMENTS_FILE
    if listed is not None and listed.is_file():
        return ["-r", str(listed)], listed.read_text(encoding="utf-8")
    extra = implementation.replace("_", "-")
    metadata = importlib.metadata.metadata("gymq")
    if extra in (metadata.get_all("Provides-Extra") or []):
        return [f"gymq[{extra}]"], metadata["Version"]
    raise UsageError(
        f"{implementation} has `isolated: true`, but there is neither a {REQUIREMENTS_FILE} beside it nor an extra "
        f"gymq[{extra}] with its requirements"
    )


def _file_of(kind: Kind, implementation: str) -> Path | None:
    place = implementation.partition(":")[0]
    if place.endswith(".py"):
        return Path(place)
    try:
        # Found without being imported: its libraries are not here.
        spec = importlib.util.find_spec(place) if "." in place else spec_of(kind, place)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


def _ensure(place: Path, wanted: list[str], cancelled: threading.Event) -> str:
    python, complete = place / "bin" / "python", place / "complete"
    with installer.alone(place, cancelled):
        if not complete.is_file():
            shutil.rmtree(place, ignore_errors=True)
            venv.create(place, symlinks=True)
            own = Path(sysconfig.get_path("purelib", "venv", {"base": str(place), "platbase": str(place)}))
            packages = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
            # `addsitedir` also reads what is installed there as editable.
            (own / "_gymq.pth").write_text(
                "".join(f"import site; site.addsitedir({path!r})\n" for path in packages), encoding="utf-8"
            )
            _install(python, wanted, cancelled)
            complete.touch()
    return str(python)


def _install(python: Path, wanted: list[str], cancelled: threading.Event) -> None:
    command = [sys.executable, "-P", "-m", "pip", "--python", str(python), "install", "--quiet", "--no-input", *wanted]
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    shown = f"pip install {' '.join(wanted)}"
    installer.install(command, shown=shown, timeout_s=1500.0, cancelled=cancelled, variables=quiet)
