"""Define the command `gymq init`."""

from __future__ import annotations

from pathlib import Path

from gymq.errors import UsageError
from gymq.ext.workbench.scaffold import TemplateName, make_worker


def init(name: str, /, *, template: TemplateName = "single-turn", agent: bool = False, folder: Path = Path(".")) -> int:
    """Create a new environment or agent: a small working one with rows, tests, configuration and a README.

    It works as generated; change it step by step. Existing files are never overwritten. The templates:

    * single-turn: a question, a reply, a verifier
    * multi-turn: a game in turns, with `reset` and `step` as in Gymnasium
    * tools: tools and a state that they change
    * judge: a judge model decides, with its own instance in the configuration
    * sandbox: the reply is a function, whose unit tests run in a sandbox
    * agent: the loop that asks the model and runs the tools
    * program: any program as the agent, which asks the model over HTTP
    * package: single-turn as a pip package, available by name where it is installed

    Args:
        name: name of the environment or agent, a Python identifier; also the name of its folder.
        template: which files to create.
        agent: the same as `--template agent`.
        folder: where to put the new folder.
    """
    if agent and template not in ("single-turn", "agent"):
        raise UsageError(f"--agent and --template {template} cannot be given together: choose one")
    made = make_worker(name, folder, template="agent" if agent else template)
    for path in made:
        print(f"made {path}")
    place = (folder / name).as_posix()
    worker = next(path for path in made if path.name == "worker.py")
    print(f"\nTry it:\n  gymq test {place if '/' in place else f'./{place}'}")
    print(f"then change {worker.as_posix()}; {place}/README.md shows how to roll it out.")
    return 0
