"""Coding agents that are known by name: the package and version of each, and the script that starts it."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import gymq
from gymq.processes import installer

HarnessName = Literal["claude_code", "codex", "opencode", "pi", "qwen_code", "cline", "gemini_cli"]

FOLDER = Path(".gymq/harnesses")
"""Where packages are installed, from the working directory of the worker on."""

INSIDE = "/opt/gymq-harness"
"""Where a container sees them."""

NODE = "22.23.3"  # of Node.js, which comes with each: images of tasks have none, or an old one
INSTALL_S = 900.0
_MACHINES = {"x86_64": "x64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Harness:
    """A program in its pinned version.

    Attributes:
        package: name in the registry of npm.
        script: of the shell. `$GYMQ_PROMPT_FILE` holds the prompt, `$GYMQ_HARNESS_HOME` is a folder for its settings.
        env: variables beside those of the gateway's admission.
        binaries: the folder of the program below `node_modules`.
    """

    package: str
    version: str
    script: str
    env: Mapping[str, str] = field(default_factory=dict)
    binaries: str = ".bin"


HARNESSES: dict[HarnessName, Harness] = {
    "claude_code": Harness(
        "@anthropic-ai/claude-code",
        "2.1.332",
        'CLAUDE_CONFIG_DIR="$GYMQ_HARNESS_HOME" '
        'exec claude --print --dangerously-skip-permissions --model policy < "$GYMQ_PROMPT_FILE"',
        {
            "IS_SANDBOX": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "policy",
        },
        binaries="@anthropic-ai/claude-code-linux-{machine}",
    ),
    "codex": Harness(
        "@openai/codex",
        "0.169.0",
        """cat > "$GYMQ_HARNESS_HOME/config.toml" <<END
model = "policy"
model_provider = "gymq"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.gymq]
name = "gymq"
base_url = "$OPENAI_BASE_URL"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
END
CODEX_HOME="$GYMQ_HARNESS_HOME" exec codex exec --skip-git-repo-check - < "$GYMQ_PROMPT_FILE"
""",
    ),
    "opencode": Harness(
        "opencode-ai",
        "1.18.33",
        """cat > "$GYMQ_HARNESS_HOME/opencode.json" <<END
{"provider": {"gymq": {"npm": "@ai-sdk/openai-compatible", "models": {"policy": {}},
   "options": {"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "{env:OPENAI_API_KEY}"}}},
 "model": "gymq/policy", "small_model": "gymq/policy", "autoupdate": false, "share": "disabled", "permission": "allow"}
END
export OPENCODE_CONFIG="$GYMQ_HARNESS_HOME/opencode.json" XDG_DATA_HOME="$GYMQ_HARNESS_HOME/data"
export XDG_CACHE_HOME="$GYMQ_HARNESS_HOME/cache" XDG_STATE_HOME="$GYMQ_HARNESS_HOME/state"
export XDG_CONFIG_HOME="$GYMQ_HARNESS_HOME/config" OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1
exec opencode run --model gymq/policy < "$GYMQ_PROMPT_FILE"
""",
        binaries="opencode-linux-{machine}/bin",  # a script of the package would link it
    ),
    "pi": Harness(
        "@mariozechner/pi-coding-agent",
        "0.73.1",
        """cat > "$GYMQ_HARNESS_HOME/models.json" <<END
{"providers": {"gymq": {"baseUrl": "$OPENAI_BASE_URL", "api": "openai-completions", "apiKey": "OPENAI_API_KEY",
  "models": [{"id": "policy"}]}}}
END
export PI_CODING_AGENT_DIR="$GYMQ_HARNESS_HOME" PI_OFFLINE=1
exec pi --print --provider gymq --model policy < "$GYMQ_PROMPT_FILE"
""",
    ),
    "qwen_code": Harness(
        "@qwen-code/qwen-code",
        "0.24.4",
        'HOME="$GYMQ_HARNESS_HOME" exec qwen --auth-type openai --model policy --yolo < "$GYMQ_PROMPT_FILE"',
        {"QWEN_CODE_SUPPRESS_YOLO_WARNING": "1"},
    ),
    "gemini_cli": Harness(
        "@google/gemini-cli",
        "0.61.0",
        """mkdir -p "$GYMQ_HARNESS_HOME/.gemini" && cat > "$GYMQ_HARNESS_HOME/.gemini/settings.json" <<END
{"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": false},
 "telemetry": {"enabled": false}, "general": {"enableAutoUpdate": false, "disableUpdateNag": true}}
END
HOME="$GYMQ_HARNESS_HOME" exec gemini --yolo --model policy < "$GYMQ_PROMPT_FILE"
""",
        {"GEMINI_CLI_TRUST_WORKSPACE": "true", "NO_BROWSER": "true"},
    ),
    "cline": Harness(
        "cline",
        "3.0.65",
        """export HOME="$GYMQ_HARNESS_HOME"
cline auth -p openai -k "$OPENAI_API_KEY" -m policy -b "$OPENAI_BASE_URL" >&2 &&
exec cline --yolo "$(cat "$GYMQ_PROMPT_FILE")" < /dev/null
""",
    ),
}


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
        binaries = self.harness.binaries.format(machine=_machine())
        found = f"{folder}/node_modules/{binaries}:{folder}/node_modules/node-linux-{_machine()}/bin"
        return (
            f'export PATH="{found}:$PATH" GYMQ_HARNESS_HOME="{home}" && mkdir -p "$GYMQ_HARNESS_HOME" || exit 125\n'
            f"{self.harness.script}"
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
        await asyncio.to_thread(_install, name, harness, folder)
    return InstalledHarness(harness, folder)


def _install(name: HarnessName, harness: Harness, folder: Path) -> None:
    """Install into a folder beside the right one, and rename it: another process may do the same."""
    wanted = [f"{harness.package}@{harness.version}", f"node-linux-{_machine()}@{NODE}"]
    npm = shutil.which("npm")
    if npm is None:
        raise gymq.OptionsError(
            f"harness: {name} comes from npm, which is not installed here; install Node.js with npm"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".installing-", dir=folder.parent, ignore_cleanup_errors=True) as place:
        # Without their scripts, which fetch or build what is optional.
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--loglevel=error"]
        command = [npm, "install", "--prefix", place, *options, *wanted]
        try:
            installer.install(command, shown=f"npm install {' '.join(wanted)}", timeout_s=INSTALL_S)
        except installer.InstallFailed as error:
            raise gymq.OptionsError(f"harness: {error}") from None
        os.chmod(place, 0o755)  # users of containers read it
        try:
            os.rename(place, folder)
        except OSError:
            if not folder.is_dir():
                raise


def _machine() -> str:
    """Return what packages of npm call this machine.

    Raises:
        OptionsError: there are none for it.
    """
    machine = _MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None:
        known = " and ".join(_MACHINES)
        raise gymq.OptionsError(f"harness: named harnesses run on Linux, on {known}; set `command` to run a program")
    return machine
