"""Scripts that reproduce an issue: finding one in a reply, and the patch that adds it."""

from __future__ import annotations

import re

from workers.resources.swerl_gen.edits import Void

ISSUE_PRESENT, ISSUE_SOLVED = 2, 0  # exit status of a script

_BLOCK = re.compile(r"```python\n([\s\S]*?)\n```")
_DASHED = re.compile(r"^-{3,}\n(#!/usr/bin/env python[\s\S]*?)\n-{3,}$", re.MULTILINE)


def script_in(solution: str) -> tuple[str, str]:
    """Name and text of the last script.

    Raises:
        Void: there is none.
    """
    scripts = _BLOCK.findall(solution) or _DASHED.findall(solution)
    if not scripts:
        raise Void("there is no script")
    return f"reproduce_bug_{len(scripts)}.py", scripts[-1]


def new_file_patch(name: str, text: str) -> str:
    """A patch that adds a file."""
    lines = text.splitlines()
    head = [
        f"diff --git a/{name} b/{name}",
        "new file mode 100644",
        "index 0000000..e69de29",
        "--- /dev/null",
        f"+++ b/{name}",
        f"@@ -0,0 +1,{len(lines)} @@",
    ]
    return "\n".join([*head, *(f"+{line}" for line in lines)]) + "\n"


def reproduces(before: list[int], after: list[int]) -> bool:
    """Whether the exit codes say that the issue was there before the reference patch and not after it."""
    if not before or len(before) != len(after):
        return False
    return before[0] == ISSUE_PRESENT and after[0] == ISSUE_SOLVED
