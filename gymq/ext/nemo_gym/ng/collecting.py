"""The work of `gymq ng`: NeMo Gym's commands, in terms of ours."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from gymq.cli.actions.collect import configured_window
from gymq.cli.shared.configuration import read_config, read_prompt
from gymq.cli.shared.datasets import blocks_of, ready_rows
from gymq.cli.shared.parameters import NOWHERE, OF_THE_ROWS, CollectArguments
from gymq.cli.shared.sampling import read_sampling
from gymq.config import load
from gymq.config.dataset_blocks import DatasetBlock
from gymq.config.errors import choices
from gymq.config.overrides import Override, parse
from gymq.config.unknown import CONCURRENCY
from gymq.data.datasets import Dataset
from gymq.data.jsonl import JsonlError, atomic_write, numbered_lines, parse_object
from gymq.data.rows import AGENT_REF, RowError
from gymq.data.run_files import ReportFiles
from gymq.data.short_rows import complete_params
from gymq.errors import UsageError
from gymq.ext.nemo_gym.addresses import DEFAULT_HEAD_PORT
from gymq.ext.shared.printed_statistics import profile_files
from gymq.protocol.instances import KIND_OF
from gymq.render import counted, say

PROGRAMS = ("run", "collect_rollouts", "e2e_collect_rollouts", "test", "reward_profile", "status", "dump_config")
"""The programs, without the `ng_` of their names."""

COLLECTION = (
    "agent_name",
    "input_jsonl_fpath",
    "limit",
    "num_repeats",
    "num_repeats_add_seed",
    CONCURRENCY,
    "output_jsonl_fpath",
    "prompt_config",
    "resume_from_cache",
)
"""Settings of `ng_collect_rollouts`; the others are changes to the configuration."""

NOT_USED = ("disable_aggregation", "upload_rollouts_to_wandb")
"""Settings of `ng_collect_rollouts` that change nothing here."""

HEAD_SERVER = "head_server"
_MADE_BY = "# Written by `gymq ng install`.\n"


def bridge_overrides(settings: Sequence[str]) -> list[str]:
    """Return overrides by which the cluster serves HTTP, as servers of NeMo Gym do, rollouts without token ids too."""
    bridge = load([], settings).tree.get("bridge") or {}
    return [] if "on_untrainable" in bridge else ["++bridge.on_untrainable=allow"]


def head_server_of(settings: Sequence[str]) -> tuple[dict[str, Any], str | None] | None:
    """Return host and port of the head server that the settings name, and its key if any; None: they name none."""
    if not any(override.keys[0] == HEAD_SERVER for override in parse(settings)):
        return None
    tree = load([], [text for text in settings if parse([text])[0].keys[0] in (HEAD_SERVER, "bridge")]).tree
    head = {"host": "127.0.0.1", "port": DEFAULT_HEAD_PORT, **(tree.get(HEAD_SERVER) or {})}
    if not isinstance(head["host"], str) or not isinstance(head["port"], int):
        raise UsageError(f"head_server needs a host and a port, not {head['host']!r} and {head['port']!r}")
    return head, (tree.get("bridge") or {}).get("api_key")


def end_to_end_of(settings: Sequence[str]) -> tuple[list[str], CollectArguments]:
    """Return what `collection_of` does, for the data sets of a split that the configuration has, put into one file."""
    given, others = _taken(settings, ("split", "reuse_existing_data_preparation"))
    split = _text(given, "split", "ng_e2e_collect_rollouts")
    _, of_workers = read_sampling(_taken(others, (*COLLECTION, *NOT_USED))[1], OF_THE_ROWS)
    config = read_config(NOWHERE, of_workers)
    blocks = [block for block in blocks_of(config, NOWHERE) if block.kind == split]
    if not blocks:
        raise UsageError(f"split: no agent of the configuration has a data set of the type {split}")
    output = Path(_text(_taken(others, COLLECTION)[0], "output_jsonl_fpath", "ng_e2e_collect_rollouts"))
    collated = output.parent / "preprocessed_datasets" / f"{split}.jsonl"
    if not (_flag(given, "reuse_existing_data_preparation") and collated.exists()):
        _collate(blocks, collated)
    return collection_of([*others, f"++input_jsonl_fpath={json.dumps(str(collated))}"])


def _collate(blocks: Sequence[DatasetBlock], output: Path) -> None:
    """Write the rows of data sets to one file, each with its agent and its prompt, as often as its block says."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(output) as file:
            for block in blocks:
                template = block.prompt()
                prompt = None if template is None else read_prompt(template)
                for _, where, line in numbered_lines(Dataset(ready_rows(block))):
                    try:
                        fields = dict(parse_object(line))
                        complete_params(fields, prompt)
                    except (JsonlError, RowError) as error:
                        raise RowError(f"{where}: {error}") from None
                    row = msgspec.json.encode({**fields, AGENT_REF: {"name": block.agent}})
                    file.write((row + b"\n") * block.num_repeats)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror or error}") from None


def collection_of(settings: Sequence[str]) -> tuple[list[str], CollectArguments]:
    """Return the overrides and the options of `gymq collect`."""
    given, others = _taken(settings, (*COLLECTION, *NOT_USED))
    tree = {**load([], others).tree, **given}
    output = Path(_text(tree, "output_jsonl_fpath", "ng_collect_rollouts"))
    prompt = tree.get("prompt_config")
    options = CollectArguments(
        rows=Path(_text(tree, "input_jsonl_fpath", "ng_collect_rollouts")),
        output=output,
        agent=tree.get("agent_name"),
        num_repeats=_repeats(tree),
        num_repeats_add_seed=_flag(tree, "num_repeats_add_seed"),
        limit=_number(tree, "limit"),
        prompt_config=None if prompt is None else Path(prompt),
        concurrency=configured_window(tree),
        overwrite=not _flag(tree, "resume_from_cache") and output.exists(),
    )
    return others, options


def worker_of(settings: Sequence[str]) -> str:
    """Return the worker of an entrypoint such as `resources_servers/mcqa`."""
    given, others = _taken(settings, ("entrypoint", "should_validate_data"))
    _refuse(others, ("entrypoint", "should_validate_data"))
    entrypoint = PurePosixPath(_text(given, "entrypoint", "ng_test"))
    is_one = len(entrypoint.parts) == 2 and entrypoint.parts[0] in KIND_OF
    return entrypoint.name if is_one else str(entrypoint)


def profile_ng_files(settings: Sequence[str]) -> int:
    """Show the statistics of files, and write them beside the rollouts."""
    names = ("materialized_inputs_jsonl_fpath", "rollouts_jsonl_fpath", "allow_partial_rollouts")
    given, others = _taken(settings, names)
    _refuse(others, names)
    inputs, rollouts = (Path(_text(given, name, "ng_reward_profile")) for name in names[:2])
    allow_partial = _flag(given, "allow_partial_rollouts")
    return profile_files(rollouts, inputs, ReportFiles.beside(rollouts), allow_partial=allow_partial)


def install_programs(folder: Path | None, *, overwrite: bool) -> None:
    """Write a program for each of NeMo Gym's commands."""
    place = folder or Path(sys.executable).parent
    programs = {place / f"ng_{name}": name.replace("_", "-") for name in PROGRAMS}
    taken = [str(path) for path in programs if path.exists() and _MADE_BY not in path.read_text(errors="replace")]
    if taken and not overwrite:
        raise UsageError(f"{', '.join(taken)} exists already; name another folder, or replace it with --overwrite")
    try:
        place.mkdir(parents=True, exist_ok=True)
        for path, command in programs.items():
            path.write_text(_program(command))
            path.chmod(0o755)
    except OSError as error:
        raise UsageError(f"{place} cannot be written: {error.strerror or error}") from None
    print(f"{counted(len(programs), 'program')} in {place}: {', '.join(path.name for path in programs)}")
    if str(place.absolute()) not in os.environ.get("PATH", "").split(os.pathsep):
        print(f"to find them: export PATH={place.absolute()}:$PATH")


def _program(command: str) -> str:
    start = shlex.join([sys.executable, "-P", "-c", "from gymq.cli import main; main()", "ng", command])
    return f'#!/bin/sh\n{_MADE_BY}exec {start} "$@"\n'


def _taken(settings: Sequence[str], names: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the values of settings with these names, and the other settings."""
    given: dict[str, Any] = {}
    others = []
    for text, override in zip(settings, parse(settings), strict=True):
        if len(override.keys) == 1 and override.keys[0] in names and override.action != "delete":
            given[override.keys[0]] = override.value
        else:
            others.append(text)
    for name in sorted(given.keys() & set(NOT_USED)):
        say(f"{name} has no meaning here and is ignored")
    return given, others


def _refuse(settings: Sequence[str], known: Sequence[str]) -> None:
    unknown: list[Override] = parse(settings)
    if unknown:
        name = ".".join(unknown[0].keys)
        raise UsageError(f"no setting {name} is known{choices(name, known)}")


def _text(tree: dict[str, Any], name: str, program: str) -> str:
    value = tree.get(name)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{program} needs +{name}=..." if value is None else f"{name} must be text, not {value!r}")
    return value


def _number(tree: dict[str, Any], name: str) -> int | None:
    value = tree.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise UsageError(f"{name} must be a whole number, not {value!r}")
    return value


def _repeats(tree: dict[str, Any]) -> Any:
    """Return a number of rollouts per row, or a mapping with one for each agent; `_default` is that of the others."""
    value = tree.get("num_repeats")
    if not isinstance(value, dict):
        return _number(tree, "num_repeats")
    for name, number in value.items():
        if not isinstance(number, int) or isinstance(number, bool):
            raise UsageError(f"num_repeats.{name} must be a whole number, not {number!r}")
    return value


def _flag(tree: dict[str, Any], name: str) -> bool:
    value = tree.get(name, False)
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be true or false, not {value!r}")
    return value
