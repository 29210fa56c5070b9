"""gymq config"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from cyclopts import Parameter
from rich.console import Console
from rich.syntax import Syntax

from gymq.authoring import OptionsError
from gymq.cli.cluster import read_config
from gymq.cli.errors import Refused, told_plainly
from gymq.cli.listing import listing
from gymq.cli.printable import printable
from gymq.config import Config, ConfigError, Instance, masked
from gymq.host import InstanceSpec, build
from gymq.registry import WorkerNotFound
from gymq.subjects import BadToken

ACTIONS = ("show", "check")


def config(
    action: str = "show",
    /,
    *overrides: str,
    config: Annotated[tuple[Path, ...], Parameter(alias="-c", consume_multiple=False)] = (),
    resources: Path | None = None,
    model_url: str | None = None,
    model: str | None = None,
    json: bool = False,
) -> int:
    """Show a configuration as workers get it, or check it.

    `gymq config show` prints it merged and resolved, with secrets as ****, and lists the workers it describes.
    `gymq config check` also finds each worker, checks its options, and ends with status 2 if there is any mistake.

    Args:
        action: show or check.
        overrides: changes to the configuration, as `key=value`, `+key=value`, `++key=value` or `~key`.
        config: configuration file; may be given several times.
        resources: Python file with a verifier, as for `gymq collect`.
        model_url: base URL of an OpenAI-compatible endpoint to use as the policy.
        model: name of the model at that endpoint.
        json: print one JSON object.
    """
    if action not in ACTIONS:
        # `gymq config key=value` leaves the action out.
        if "=" not in action and not action.startswith("~"):
            raise Refused(f"there is no action {action!r}: say `gymq config show` or `gymq config check`")
        action, overrides = ACTIONS[0], (action, *overrides)
    if action == "check":
        return _check(config, overrides, resources, model_url, model, as_json=json)
    with told_plainly():
        settings = read_config(config, overrides, resources=resources, model_url=model_url, model=model)
        _show(settings, as_json=json)
    return 0


def _show(settings: Config, *, as_json: bool) -> None:
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
    _print_instances(settings.instances, console)


def _print_instances(instances: Sequence[Instance], console: Console) -> None:
    if not instances:
        console.print("no instances: give --config FILE or --resources FILE.py")
        return
    table = listing("instances", "instance", "kind", "implementation")
    for found in instances:
        table.add_row(printable(found.name), found.kind, printable(found.implementation))
    console.print(table)


def _check(
    config: Sequence[Path],
    overrides: Sequence[str],
    resources: Path | None,
    model_url: str | None,
    model: str | None,
    *,
    as_json: bool,
) -> int:
    instances: Sequence[Instance] = ()
    try:
        instances = read_config(config, overrides, resources=resources, model_url=model_url, model=model).instances
        mistakes = [mistake for found in instances if (mistake := _mistake(found))]
        if not instances:
            mistakes = ["the configuration describes no workers: give --config FILE or --resources FILE.py"]
    except (ConfigError, Refused) as error:
        mistakes = [str(error)]
    if as_json:
        print(msgspec.json.encode({"ok": not mistakes, "mistakes": mistakes}).decode())
    elif not mistakes:
        _print_instances(instances, Console())
        print("no mistakes")
    for mistake in [] if as_json else mistakes:
        print(f"gymq: {mistake}", file=sys.stderr)
    return 2 if mistakes else 0


def _mistake(found: Instance) -> str | None:
    """What is wrong with the worker of an instance, in one line; None if nothing is."""
    try:
        build(InstanceSpec(found.name, found.kind, found.implementation, found.options))
    except OptionsError as error:
        return str(error)
    except (BadToken, WorkerNotFound) as error:
        return f"{found.name}: {error}"
    except Exception as error:  # the worker's own code, which may raise anything while it is imported
        return f"{found.name}: {found.implementation} cannot be loaded: {type(error).__name__}: {error}"
    return None
