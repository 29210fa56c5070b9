"""The command `gymq`. Each command is a file here and is imported only when it is called."""

from __future__ import annotations

import sys
from typing import Any

import cyclopts

from gymq import credentials
from gymq.cli.errors import Refused

COMMANDS = {
    "up": "Start a cluster on this machine and keep it running.",
    "bridge": "Serve HTTP for a cluster that runs: the interface that trainers and harnesses know.",
    "collect": "Roll out a data set: rows in, verified rollouts and pass@k out.",
    "profile": "Statistics of a run, live or as files.",
    "status": "Server, streams, workers, queues and runs.",
    "top": "Watch a cluster: rollouts per second, pass@k, load, failures.",
    "export": "Hand on a stored run: JSONL, Parquet, Weights & Biases, MLflow.",
    "rollouts": "List the rollouts of a run, or read one whole.",
    "cancel": "Stop a run, or one task of it.",
    "weights": "Give all replicas of a model new weights.",
    "delete": "Delete what is stored of a run.",
    "dead-letters": "What was given up: list it, read it, give it back or drop it.",
    "score": "Verify stored rollouts again, without a model.",
    "list": "The workers there are, and what each needs.",
    "test": "Run the tests and the example rows of a worker.",
    "audit": "Look for what fools or holds up an environment.",
    "init": "Make the files of a new environment.",
    "config": "Show or check a configuration.",
    "auth": "A NATS server where each role may do only what it needs.",
}


def make_app(asked_for: str | None = None) -> cyclopts.App:
    """The command line.

    Args:
        asked_for: the command that is about to run: its own page shows the whole of its help, not one line.
    """
    app = cyclopts.App(
        name="gymq",
        help="Verifiable-reward rollouts for reinforcement learning, over NATS.",
        version_flags=["--version"],
        default_parameter=cyclopts.Parameter(negative=(), show_default=_shown_default),
    )
    for name, line in COMMANDS.items():
        module = name.replace("-", "_")
        app.command(f"gymq.cli.{module}:{module}", name=name, help=None if name == asked_for else line)
    app.register_install_completion_command()
    return app


def _shown_default(value: Any) -> str | None:
    return None if value in (None, False, ()) else str(value)


def main() -> None:
    """Run a command. Exit status: 0 done, 1 failed, 2 refused for its input, 3 finished with failed rollouts."""
    credentials.hide_memory()
    try:
        sys.exit(make_app(sys.argv[1] if len(sys.argv) > 1 else None)(sys.argv[1:]))
    except Refused as refused:
        print(f"gymq: {refused}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("gymq: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
