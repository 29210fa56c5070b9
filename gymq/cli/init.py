"""gymq init"""

from __future__ import annotations

from pathlib import Path

from gymq.cli.errors import told_plainly
from gymq.scaffold import make_worker


def init(name: str, /, *, agent: bool = False, folder: Path = Path(".")) -> int:
    """Make the files of a new environment: a complete small verifier with rows, tests, configuration and a README.

    It works as it is, so there is something to change. Files that exist are never overwritten.

    Args:
        name: name of the environment, a Python identifier; its folder is called so.
        agent: make an agent instead of an environment.
        folder: where to put the new folder.
    """
    with told_plainly():
        made = make_worker(name, folder, kind="agent" if agent else "environment")
    place = (folder / name).as_posix()
    for path in made:
        print(f"made {path}")
    print(f"\nTry it:\n  gymq test {place if '/' in place else f'./{place}'}")
    print(f"then change {place}/worker.py; {place}/README.md shows how to roll it out.")
    return 0
