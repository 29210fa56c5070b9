"""Harnesses on this machine: installed at their first use, and as agents run them."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gymq.workers.agents.program_agent import portable_python
from gymq.workers.agents.program_agent.harnesses import HARNESSES, Harness, HarnessName

import gymq
from gymq.errors import UsageError
from gymq.processes import installer

FOLDER = Path(".gymq/harnesses")
"""Where packages are installed, from the working directory of the worker on."""

INSIDE = "/opt/gymq-harness"
"""Where a container sees them."""

NODE = "22.23.3"  # of Node.js, which comes with each: images of tasks have none, or an old one
INSTALL_S = 1500.0  # a busy machine takes long to unpack and to compile
_SETTINGS = (
    "HTTPS_PROXY, NODE_EXTRA_CA_CERTS, npm_config_* and PIP_* are taken from where gymq was started, passwords of "
    "registries from ~/.npmrc and pip.conf; `pass_env` passes any other variable"
)
_MACHINES = {"x86_64": "x64", "aarch64": "arm64"}


@dataclass(frozen=True)
class InstalledHarness:
    """A harness whose packages are on this machine."""

    harness: Harness
    folder: Path

    @property
    def folders(self) -> dict[str, str]:
        """What a container must see of this machine, by its path in there."""
        return {INSIDE: str(self.folder.absolute())}

    def script(self, folder: str, home: str) -> str:
        """Return the script of the shell that runs it.

        Args:
            folder: path of the packages for the program: `INSIDE` in a container.
            home: path of a folder for its settings, which is made.
        """
        path = "$PATH"
        if self.harness.requirements is None:
            binaries = self.harness.binaries.format(machine=_machine())
            path = f"{folder}/node_modules/{binaries}:{folder}/node_modules/node-linux-{_machine()}/bin:$PATH"
        return (
            f'export PATH="{path}" GYMQ_HARNESS_FOLDER="{folder}" GYMQ_HARNESS_HOME="{home}" '
            f'&& mkdir -p "$GYMQ_HARNESS_HOME" || exit 125\n{self.harness.script}'
        )

    def script_in_container(self) -> str:
        """Return the script that runs it in a container with `folders`."""
        return self.script(INSIDE, "/tmp/gymq-harness-home")

    def env(self, prompt_file: str) -> dict[str, str]:
        """Return its variables, beside those of the gateway's admission."""
        return {**self.harness.env, "GYMQ_PROMPT_FILE": prompt_file}


@dataclass(frozen=True)
class ContainerProgram:
    """A coding agent in a container: its script of the shell, its variables, and the folders that it must see."""

    script: str
    env: Mapping[str, str]
    folders: Mapping[str, str]


async def container_program(name: HarnessName | None, command: str, prompt_file: str) -> ContainerProgram:
    """Return the coding agent that an agent's options name, which is installed at its first use, or describe.

    Args:
        name: that of a harness; None: it is `command`.
        command: a script of the shell.
        prompt_file: path of the prompt in the container.

    Raises:
        OptionsError: as from `install`.
    """
    if name is None:
        return ContainerProgram(command, {}, {})
    installed = await install(name)
    return ContainerProgram(installed.script_in_container(), installed.env(prompt_file), installed.folders)


async def install(name: HarnessName) -> InstalledHarness:
    """Return a harness, which is installed at its first use.

    Raises:
        OptionsError: its packages cannot be installed here; the message says how it can be cured.
    """
    harness = HARNESSES[name]
    folder = FOLDER / f"{name}-{harness.version}"
    if not folder.is_dir():
        try:
            await installer.in_thread(_install, name, harness, folder.absolute())
        except UsageError as error:
            raise gymq.OptionsError(f"harness: {name}: {error}; {_SETTINGS}") from None
        except portable_python.NoPortablePython as error:
            raise gymq.OptionsError(f"harness: {name}: {error}") from None
    return InstalledHarness(harness, folder)


def _install(name: HarnessName, harness: Harness, folder: Path, cancelled: threading.Event) -> None:
    """Install into a folder beside the right one, and rename it."""
    place = folder.with_name(f".installing-{folder.name}")
    with installer.alone(folder, cancelled):
        if folder.is_dir():
            return
        shutil.rmtree(place, ignore_errors=True)  # of a process that was killed
        place.mkdir()
        try:
            if harness.requirements is None:
                _install_from_npm(name, harness, place, cancelled)
            else:
                portable_python.make(place, harness.requirements, install_s=INSTALL_S, cancelled=cancelled)
            os.chmod(place, 0o755)  # users of containers read it
            os.rename(place, folder)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _install_from_npm(name: HarnessName, harness: Harness, place: Path, cancelled: threading.Event) -> None:
    wanted = [f"{harness.package}@{harness.version}", f"node-linux-{_machine()}@{NODE}"]
    npm = shutil.which("npm")
    if npm is None:
        raise gymq.OptionsError(
            f"harness: {name} comes from npm, which is not installed here; install Node.js with npm"
        )
    # Without their scripts, which fetch or build what is optional.
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--loglevel=error"]
    command = [npm, "install", "--prefix", str(place), *options, *wanted]
    installer.install(command, shown=f"npm install {' '.join(wanted)}", timeout_s=INSTALL_S, cancelled=cancelled)


def _machine() -> str:
    """Return what packages of npm call this machine."""
    machine = _MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None:
        known = " and ".join(_MACHINES)
        raise gymq.OptionsError(f"harness: named harnesses run on Linux, on {known}; set `command` to run a program")
    return machine
