"""Coding agents that are known by name: the package and version of each, and the script that starts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

HarnessName = Literal["claude_code", "codex", "opencode", "openhands", "pi", "qwen_code", "cline", "gemini_cli"]


@dataclass(frozen=True)
class Harness:
    """A program in its pinned version.

    Attributes:
        package: name in the registry of npm; with `requirements`, in that of Python.
        script: of the shell. `$GYMQ_PROMPT_FILE` holds the prompt, `$GYMQ_HARNESS_HOME` is a folder for its settings,
            `$GYMQ_HARNESS_FOLDER` that of its packages.
        env: variables beside those of the gateway's admission.
        binaries: the folder of the program below `node_modules`.
        requirements: for a program in Python: a file with every package that it needs.
    """

    package: str
    version: str
    script: str
    env: Mapping[str, str] = field(default_factory=dict)
    binaries: str = ".bin"
    requirements: Path | None = None


_HERE = Path(__file__).parent

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
    "openhands": Harness(
        "openhands-sdk",
        "1.57.0",
        f"""cat > "$GYMQ_HARNESS_HOME/program.py" <<'END_OF_PROGRAM'
{(_HERE / "openhands_program.py").read_text(encoding="utf-8")}
END_OF_PROGRAM
exec "$GYMQ_HARNESS_FOLDER/bin/python3" -I -X utf8 "$GYMQ_HARNESS_HOME/program.py"
""",
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENHANDS_SUPPRESS_BANNER": "1"},
        requirements=_HERE / "openhands.txt",
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
