"""Scripts that reproduce an issue: finding one in a reply, and the patch that adds it."""

from __future__ import annotations

import re

from workers.resources.swerl_gen.edits import Void

ISSUE_PRESENT, ISSUE_SOLVED = 2, 0  # exit status of a script

_BLOCK = re.compile(r"```python\n([\s\S]*?)\n```")
_SHEBANG = "#!/usr/bin/env python"
_DASHED = re.compile(rf"^-+\s*\n{_SHEBANG}.*([\s\S]*?)(?:\n-+[ \t]*$|\Z)", re.MULTILINE)


def script_in(reply: str) -> tuple[str, str]:
    """Name and text of the last script, wherever in the reply it stands. The name tells how many there are.

    Without a fenced one it is the first between lines of dashes, whose `#!` line becomes an empty line.

    Raises:
        Void: there is none.
    """
    scripts = _BLOCK.findall(reply)
    if not scripts:
        dashed = _DASHED.search(reply)
        if dashed is None:
            raise Void("there is no script")
        scripts = [dashed[1].rstrip()]
    return f"reproduce_bug_{len(scripts)}.py", scripts[-1]


def new_file_patch(name: str, text: str) -> str:
    """A patch that adds a file."""
    lines = text.split("\n")
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
