"""Scripts that reproduce an issue: finding one in a reply, and the patch that adds it."""

from __future__ import annotations

import re

from gymq.workers.resources.swerl_gen.edits import Void

from gymq.ext.text import code_blocks

ISSUE_PRESENT, ISSUE_SOLVED = 2, 0  # exit status of a script

_SHEBANG = "#!/usr/bin/env python"
_QUOTES = '"' * 3
_DASHED_LINE = re.compile(r"\n-++[ \t]*+$", re.MULTILINE)


def script_in(reply: str) -> tuple[str, str]:
    """Return name and text of the last script anywhere in the reply. The name contains the number of scripts.

    Without a fenced one it is the first between lines of dashes, whose `#!` line becomes an empty line.

    Raises:
        Void: there is none.
    """
    scripts = [block.lines for block in code_blocks(reply, "python") if block.is_closed] or [_dashed(reply)]
    return f"reproduce_bug_{len(scripts)}.py", scripts[-1]


def _dashed(reply: str) -> str:
    end = 0
    while (shebang := reply.find(_SHEBANG, end)) >= 0:
        if _stands_below_dashes(reply, shebang, end):
            start = reply.find("\n", shebang)
            if start < 0:
                return ""
            closing = _DASHED_LINE.search(reply, start)
            return reply[start : closing.start() if closing else len(reply)].rstrip()
        end = shebang + 1
    raise Void("there is no script")


def _stands_below_dashes(reply: str, shebang: int, since: int) -> bool:
    """Return whether the last line before a place that is not blank is one of dashes."""
    before = reply[since:shebang]
    dashes = before.rstrip()
    rest = dashes.rstrip("-")
    begins_line = rest.endswith("\n") if rest else since == 0 or reply[since - 1] == "\n"
    return before.endswith("\n") and dashes != rest and begins_line


def new_file_patch(name: str, text: str) -> str:
    """Return a patch that adds a file."""
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


def decoys_of(patch: str, solved: bool) -> dict[str, str]:
    """Return text to append to the Python files that a patch changes, by path.

    It is a string without use. With it the files hold the same lines without the patch as with it, and a script that
    looks for a line in the source learns nothing.

    Args:
        solved: the patch is applied, so what it removed is missing; otherwise what it adds.
    """
    sign, path = "-" if solved else "+", ""
    missing: dict[str, list[str]] = {}
    for line in patch.split("\n"):
        if line.startswith("+++ "):
            path = line.removeprefix("+++ ").partition("\t")[0].removeprefix("b/")
            missing[path] = []
        elif line.startswith(sign) and not line.startswith("--- ") and path:
            missing[path].append(line[1:])
    return {path: _unused_string(lines) for path, lines in missing.items() if path.endswith(".py")}


def _unused_string(lines: list[str]) -> str:
    plain = [line for line in lines if line.isascii() and "\0" not in line and _QUOTES not in line]
    return "\n".join(["", f"r{_QUOTES}", *plain, _QUOTES, ""])


def reproduces(before: list[int], after: list[int]) -> bool:
    """Return whether the exit codes show the issue before the reference patch and not after it, as often."""
    if not before or len(before) != len(after):
        return False
    return before[0] == ISSUE_PRESENT and after[0] == ISSUE_SOLVED
