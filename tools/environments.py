"""Install the environments that environments.toml lists, and run their tests.

python tools/environments.py install|test NAME [ARGUMENTS OF PYTEST]
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TABLE: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "tools" / "environments.toml").read_text())
OWN = "gymq"


def folder(name: str) -> Path:
    """Return where an environment is."""
    return ROOT / (".venv" if name == OWN else f".venv-{name}")


def python(name: str) -> str:
    """Return the path of an environment's Python."""
    return str(folder(name) / "bin" / "python")


def run(name: str, commands: list[str], arguments: str = "") -> None:
    """Run the commands of an environment, after those that they name are installed.

    Raises:
        subprocess.CalledProcessError: If one fails; the others are not run.
    """
    # pip is for machines where only its own configuration names an index.
    pip = f"{python(name)} -m pip install --quiet --no-compile"
    uv = f'installed() {{ UV_FIND_LINKS="$PIP_FIND_LINKS" {python(OWN)} -m uv pip install --quiet --link-mode copy '
    uv += f'--python {python(name)} "$@" || {pip} "$@"; }}; installed'
    values = {"pip": pip, "uv": uv, "python": python(name), "args": arguments}
    for command in commands:
        for other in re.findall(r"{([a-z-]+)}", command):
            if other not in values:
                if other != OWN:
                    install(other)
                values[other] = python(other)
        print(f"{name}: {command}", flush=True)
        filled = re.sub(r"{([a-z-]+)}", lambda match: values[match[1]], command)
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        subprocess.run(["bash", "-euc", filled], cwd=ROOT, check=True, env=environ)


def install(name: str) -> None:
    """Install an environment, unless what it is made of is as it was then."""
    row = TABLE[name]
    if "install" not in row:
        return
    text = repr((row["install"], row.get("python"), row.get("over")))
    for file in sorted({*re.findall(r"\S+requirements\S*\.txt", text), "pyproject.toml"}):
        text += (ROOT / file).read_text()
    made_of, stamp = hashlib.sha256(text.encode()).hexdigest(), folder(name) / "installed"
    if stamp.exists() and stamp.read_text() == made_of:
        return
    if (over := row.get("over")) not in (None, OWN):
        install(over)
    subprocess.run([row.get("python", "python3"), "-m", "venv", "--clear", folder(name)], check=True)
    if over is not None:
        packages = [next(folder(one).glob("lib/python*/site-packages")) for one in (name, over)]
        (packages[0] / "_over.pth").write_text(f"import site; site.addsitedir({str(packages[1])!r})\n")
    run(name, row["install"])
    stamp.write_text(made_of)


def main() -> None:
    """Do what the command line says; without a name, list the environments."""
    if len(sys.argv) < 3 or (name := sys.argv[2]) not in TABLE:
        sys.exit("NAME is one of:\n" + "\n".join(f"  {name:<12} {row['about']}" for name, row in TABLE.items()))
    try:
        install(name)
        if sys.argv[1] == "test":
            run(name, TABLE[name].get("test", []), shlex.join(sys.argv[3:]))
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)


if __name__ == "__main__":
    main()
