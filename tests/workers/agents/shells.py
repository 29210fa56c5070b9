"""Calls of the tool with which a coding agent runs commands, whatever it is called there."""

from typing import Any

SHELLS = ("Bash", "bash", "shell", "exec_command", "shell_command", "run_shell_command", "run_commands", "terminal")


def shell_call(tools: dict[str, dict[str, Any]], command: str) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of the call that runs a command.

    Args:
        tools: the tools of a program by their names, each with its `parameters`.
    """
    name = next(name for name in SHELLS if name in tools)
    schema = tools[name]["parameters"]
    arguments: dict[str, Any] = {}
    for key, kind in schema["properties"].items():
        if key in ("command", "cmd"):
            arguments[key] = ["bash", "-c", command] if kind.get("type") == "array" else command
        elif key == "commands":
            arguments[key] = [command]
        elif key in schema.get("required", ()):
            anything = {"boolean": False, "string": "as asked"}.get(kind.get("type"), 60_000)
            arguments[key] = kind.get("enum", [anything])[0]
    return name, arguments
