"""The command `gymq`. Each command is a file here and is imported only when it is called."""

from __future__ import annotations

import sys

import cyclopts

from gymq.cli.errors import Refused

COMMANDS = {
    "up": "Start a cluster on this machine and keep it running.",
    "collect": "Roll out a data set: rows in, verified rollouts and pass@k out.",
    "profile": "Statistics of a run, live or as files.",
    "status": "Server, streams, workers, queues and runs.",
    "rollouts": "List the rollouts of a run, or read one whole.",
    "score": "Verify stored rollouts again, without a model.",
    "test": "Run the tests and the example rows of a worker.",
    "init": "Make the files of a new environment.",
    "config": "Show, check or explain a configuration.",
}

app = cyclopts.App(
    name="gymq",
    help="Verifiable-reward rollouts for reinforcement learning, over NATS.",
    version_flags=["--version"],
)
for _name, _help in COMMANDS.items():
    app.command(f"gymq.cli.{_name}:{_name}", name=_name, help=_help)
app.register_install_completion_command()


def main() -> None:
    """Run a command. Exit status: 0 done, 1 failed, 2 refused for its input, 3 finished with failed rollouts."""
    try:
        sys.exit(app())
    except Refused as refused:
        print(f"gymq: {refused}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("gymq: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
