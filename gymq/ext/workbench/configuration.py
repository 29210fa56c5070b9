"""The work of `gymq config`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import msgspec
import yaml
from rich.console import Console
from rich.syntax import Syntax

from gymq.authoring import OptionsError
from gymq.cli.shared.configuration import check_instance
from gymq.config import Config, ConfigError, Instance, masked
from gymq.errors import UsageError
from gymq.execution.loading.building import WorkerFailed
from gymq.execution.loading.registry import WorkerNotFound
from gymq.protocol.subjects import BadToken
from gymq.render import listing, listing_console, printable

ACTIONS = ("show", "check")


def show_config(settings: Config, *, as_json: bool) -> None:
    tree = masked(settings.tree)
    if as_json:
        instances = [
            {"name": found.name, "kind": found.kind, "implementation": found.implementation}
            for found in settings.instances
        ]
        print(msgspec.json.encode({"config": tree, "instances": instances}, enc_hook=str).decode())
        return
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    console = Console()
    if console.is_terminal:
        console.print(Syntax(text, "yaml", background_color="default", word_wrap=True))
    else:
        print(text)
    _print_instances(settings.instances)


def _print_instances(instances: Sequence[Instance]) -> None:
    console = listing_console()
    if not instances:
        console.print("no instances: give --config FILE or --resources FILE.py")
        return
    table = listing("instances", "instance", "kind", "implementation", names=("kind", "implementation"))
    for found in instances:
        table.add_row(printable(found.name), found.kind, printable(found.implementation))
    console.print(table)


def check_config(read: Callable[[], Config], *, as_json: bool) -> int:
    instances: Sequence[Instance] = ()
    try:
        settings = read()
        instances = settings.instances
        problems = [problem for found in instances if (problem := _problem(settings, found))]
        if not instances:
            problems = ["the configuration describes no workers: give --config FILE or --resources FILE.py"]
    except (ConfigError, UsageError) as error:
        problems = [str(error)]
    if as_json:
        print(msgspec.json.encode({"ok": not problems, "mistakes": problems}).decode())
    elif not problems:
        _print_instances(instances)
        print("no mistakes")
    for problem in [] if as_json else problems:
        print(f"gymq: {problem}", file=sys.stderr)
    return 2 if problems else 0


def _problem(config: Config, found: Instance) -> str | None:
    """Return what is wrong with the worker of an instance, in one line; None if nothing is."""
    try:
        check_instance(config, found)
    except BadToken as error:
        return f"{found.name}: {error}"
    except (OptionsError, WorkerFailed, WorkerNotFound) as error:
        return str(error)
    return None
