"""The command `gymq`. Each command is a file here and is imported only when it is called or its help is shown.

Its file has the options and imports nothing heavy at its top, so that help comes at once. Large work is in `actions/`.
"""

from __future__ import annotations

import atexit
import errno
import gc
import logging
import os
import signal
import sys
import threading
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import Any

import cyclopts
from cyclopts.panel import CycloptsPanel

from gymq.cli.shared.command import Command
from gymq.errors import GymqError
from gymq.extensions import extensions
from gymq.processes import memory
from gymq.render import say

GROUPS = ("Run", "Read", "Author", "Operate")
"""What commands are for, in the order of the list."""

CORE = {
    "collect": Command("Run", "Roll out a data set: rows in, verified rollouts out.", "gymq.cli.collect:collect"),
    "up": Command("Operate", "Start a cluster on this machine and keep it running.", "gymq.cli.up:up"),
}

_MEANT = {  # by a name that is none
    "runs": "rollouts",
    "failures": "rollouts --run RUN --failed",
    "logs": "view",
    "run": "collect",
    "eval": "collect",
    "start": "up",
    "serve": "up",
}


def all_commands() -> dict[str, Command]:
    """Return the commands by name: the core's, then those of the packages beside it."""
    return CORE | {found.name: found.load() for found in extensions("commands")}


def _commands(asked_for: str | None) -> dict[str, Command]:
    """Return the core's commands, or the one beside it that is asked for; all commands if it is neither."""
    if asked_for in CORE:
        return CORE
    found = {one.name: one.load() for one in extensions("commands") if one.name == asked_for}
    return found or all_commands()


def make_app(asked_for: str | None = None) -> cyclopts.App:
    """Return the command line app.

    Args:
        asked_for: the command that is about to run: its own page shows the whole of its help, not one line.
    """
    app = cyclopts.App(
        name="gymq",
        help="Verifiable-reward rollouts for reinforcement learning, over NATS.",
        version_flags=["--version"],
        default_parameter=cyclopts.Parameter(negative=(), show_default=_shown_default),
        error_formatter=_shown_error,
        suppress_keyboard_interrupt=False,  # its exit status would be that of Ctrl-C at SIGTERM too
    )
    commands = _commands(asked_for)
    groups = {title: cyclopts.Group(title, sort_key=column) for column, title in enumerate(GROUPS)}
    for row, (name, command) in enumerate(commands.items()):
        shown = None if name == asked_for else command.line
        app.command(command.path, name=name, help=shown, group=groups[command.group], sort_key=row)
    if asked_for not in commands:
        app.register_install_completion_command()  # it imports the writers of all shells' scripts
        options = cyclopts.Group("Options", sort_key=len(GROUPS))
        for flag in ("--help", "--version", "--install-completion"):
            app[flag].group = options
    return app


def _shown_default(value: Any) -> str | None:
    return None if value in (None, False, ()) else str(value)


def _shown_error(error: cyclopts.CycloptsError) -> Any:
    """Return the message for a command line that cannot be parsed; an absent parameter is missing."""
    shown: object = error
    if isinstance(error, cyclopts.UnknownCommandError) and error.unused_tokens and not error.command_chain:
        name = error.unused_tokens[0]
        meant = _MEANT.get(name) or next(iter(get_close_matches(name, all_commands(), n=1)), None)
        shown = f"no command {name!r}; {f'did you mean `gymq {meant}`?' if meant else '`gymq --help` lists them'}"
    if isinstance(error, cyclopts.MissingArgumentError) and error.keyword is None and error.argument is not None:
        argument = error.argument
        was_given = any(token.keyword is not None for token in argument.tokens)
        if not was_given and "Did you mean" not in str(error):
            value = "FILE" if argument.hint is Path else "VALUE"
            missing = f"{argument.name} {value}" if argument.name.startswith("-") else argument.name
            command = " ".join(("gymq", *(error.command_chain or ())))
            shown = f"missing {missing}; `{command} --help` explains it"
    if isinstance(error, cyclopts.UnusedCliTokensError) and error.unused_tokens:
        command = " ".join(("gymq", *(error.command_chain or ())))
        shown = f"unexpected argument {error.unused_tokens[0]!r}; `{command} --help` explains the command"
    return CycloptsPanel(shown)


def _end_as_interrupted(received: list[int]) -> None:
    """End the command at SIGTERM as Ctrl-C does, so that it leaves no unfinished files; `received` gets the signal."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        on_interrupt = signal.getsignal(signal.SIGINT)
        if not callable(on_interrupt):  # a shell has it ignored for what it starts in the background
            raise KeyboardInterrupt
        on_interrupt(signal.SIGINT, frame)

    signal.signal(signal.SIGTERM, interrupt)


def main() -> None:
    """Run a command. Exit status: 0 done, 1 failed, 2 refused for its input, 3 finished with failed rollouts."""
    received: list[int] = []
    if threading.current_thread() is threading.main_thread():  # others cannot handle signals
        _end_as_interrupted(received)
    memory.hide_memory()
    atexit.register(gc.freeze)  # at the end Python would search all that was imported
    if logging.lastResort is not None:  # where a command has no log, warnings look like its other messages
        logging.lastResort.setFormatter(logging.Formatter("gymq: %(message)s"))
    try:
        os.getcwd()
    except FileNotFoundError:
        say("the working folder has been deleted: change to another one")
        sys.exit(2)
    try:
        sys.exit(make_app(sys.argv[1] if len(sys.argv) > 1 else None)(sys.argv[1:]))
    except GymqError as error:
        say(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(128 + (received or [signal.SIGINT])[0])
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:  # as of what is printed into a file
            raise
        say(f"{error.filename}: {error.strerror}" if error.filename else f"{error.strerror}")
        sys.exit(2)
