"""Code blocks of the documents: which are files, which are run, and what they have to print.

The word after the language says what a block is: a file name (```python capitals.py) puts it into the document's
folder, `run` runs it there, and a `text` block right behind it is what it prints, with `...` for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
RUN = "run"

_BLOCK = re.compile(r"^```(\w+) ?([^\n]*)\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
_COMMANDS = {"python": (sys.executable, "-c"), "sh": ("bash", "-euo", "pipefail", "-c")}
_PORT = re.compile(r"\bport:? (\d{4,5})\b")  # as a configuration or an option gives it
_LIMIT_S = 600


@dataclass(frozen=True)
class Block:
    """One fenced block of a document."""

    line: int
    language: str
    purpose: str  # a file name, `run` or nothing
    text: str
    prints: str | None

    @property
    def is_file(self) -> bool:
        return "." in self.purpose


def blocks_of(document: Path) -> list[Block]:
    """The blocks of a Markdown file, in order."""
    content = document.read_text(encoding="utf-8")
    return [
        Block(content.count("\n", 0, found.start()) + 1, found[1], found[2].strip(), found[3], found[4])
        for found in _BLOCK.finditer(content)
    ]


def play(document: Path, folder: Path) -> list[str]:
    """Write the files of a document into a folder and run its commands there, in order.

    The ports that a document chooses become free ones of this machine.

    Returns:
        What went wrong, if anything.
    """
    blocks = _with_free_ports([block for block in blocks_of(document) if block.purpose == RUN or block.is_file])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GYMQ_")}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100", "TERM": "dumb"}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_asyncio.plugin"}  # as `gymq[test]`
    for block in blocks:
        where = f"{document.relative_to(ROOT)}:{block.line}"
        if block.purpose == RUN:
            command = (*_COMMANDS[block.language], block.text)
            ran = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
            )
            if ran.returncode:
                return [f"{where}: ended with status {ran.returncode}", ran.stdout[-4000:], ran.stderr[-4000:]]
            if block.prints is not None and not _fits(ran.stdout, block.prints):
                return [f"{where}: it does not print what stands there, but:", ran.stdout[-4000:]]
        else:
            file = folder / block.purpose
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
    return []


def _with_free_ports(blocks: list[Block]) -> list[Block]:
    """Replace each port that a block chooses, wherever it stands, by one that nothing on this machine uses."""
    chosen = dict.fromkeys(port for block in blocks for port in _PORT.findall(block.text))
    ports = {port: str(free_port("127.0.0.1")) for port in chosen}
    if not ports:
        return blocks
    somewhere = re.compile(rf"\b({'|'.join(ports)})\b")
    return [replace(block, text=somewhere.sub(lambda found: ports[found[1]], block.text)) for block in blocks]


def _fits(printed: str, expected: str) -> bool:
    """Compare line ends aside; `...` stands for anything."""
    pieces = [re.escape(piece) for piece in _trimmed(expected).split("...")]
    return re.fullmatch(".*?".join(pieces), _trimmed(printed), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
