"""Wheels of gymq in folders of their own: of this release, and of later ones, made of the files of this one."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STARTED = "of a later release"  # what each of a later release's worker processes logs when it serves
_IN_A_WHEEL = ("gymq", "workers", "examples/demo")


def install_wheel(folder: Path, source: Path = ROOT) -> Path:
    """Build a wheel of a checkout in a folder, and return where in it the wheel is installed."""
    python, installed = [sys.executable, "-m"], folder / "installed"
    built = ["hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run([*python, *built], cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    pip = ["pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(installed)]
    subprocess.run([*python, *pip, str(wheel)], check=True, capture_output=True)
    return installed


def release(folder: Path, versions: str) -> Path:
    """Install a wheel of a later release, which speaks other versions, and sends fields that this one lacks.

    Args:
        folder: made if it is not there.
        versions: those that it speaks, as in `gymq.protocol.versions`.
    """
    source = folder / "source"
    for name in _IN_A_WHEEL:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    about = (ROOT / "pyproject.toml").read_text()
    (source / "pyproject.toml").write_text(re.sub(r'(?m)^version = ".*"$', 'version = "99.0.0"', about, count=1))
    for name, before, after in (
        ("protocol/versions", "oldest=1, newest=1", versions),
        ("cluster/worker_process", "    answer(READY)\n", f'    log.warning("{STARTED}")\n    answer(READY)\n'),
        (
            "protocol/messages",
            "    run: Token\n",
            "    run: Token\n    since_later: list[int] = msgspec.field(default_factory=lambda: [1])\n",
        ),
    ):
        file = source / "gymq" / f"{name}.py"
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after))
    return install_wheel(folder, source)
