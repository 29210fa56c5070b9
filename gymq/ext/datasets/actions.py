"""The work of `gymq data`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from gymq.cli.shared.configuration import read_config
from gymq.cli.shared.datasets import blocks_of
from gymq.cli.shared.parameters import WorkerSources
from gymq.config.dataset_blocks import BENCHMARK, DatasetBlock, find_block
from gymq.data.datasets import HUB, READABLE, Dataset
from gymq.data.jsonl import JsonlError, atomic_write, numbered_lines, parse_object
from gymq.data.rows import RowError
from gymq.errors import UsageError
from gymq.execution.loading.registry import WorkerNotFound, find_class, worker_names
from gymq.ext.datasets.preparation import prepare
from gymq.ext.datasets.token_counts import token_counter
from gymq.render import counted, listing, listing_console, printable
from gymq.resources import Resources, RowsWanted


def make_data(
    environment: str,
    count: int,
    tokens: int | None,
    seed: int,
    kinds: Sequence[str],
    tokenizer: str | None,
    output: Path | None,
) -> None:
    """Write the rows that an environment makes to a file, or print them."""
    author = find_class("resources", environment)
    if not makes_rows(author):
        raise UsageError(f"{environment} makes no rows; these do: {', '.join(makers())}")
    unknown = [kind for kind in kinds if kind not in author.row_kinds]
    if unknown:
        raise UsageError(
            f"{environment} makes no rows of the kind {unknown[0]!r}: {', '.join(author.row_kinds) or 'all are of one'}"
        )
    wanted = RowsWanted(count, seed, tokens, tuple(kinds) or author.row_kinds, token_counter(tokenizer))
    lines = (msgspec.json.encode(row) + b"\n" for row in author.make_rows(wanted))
    if output is None:
        for line in lines:
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        return
    try:
        with atomic_write(output) as file:
            file.writelines(lines)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror or error}") from None
    print(f"{counted(count, 'row')} in {output}")


def makes_rows(author: type[Resources]) -> bool:
    """Return whether a class defines `make_rows`."""
    return any("make_rows" in vars(base) for base in author.__mro__ if base is not Resources)


def makers() -> list[str]:
    """Return the names of the environments that make rows and can be imported."""
    found = []
    for name in worker_names("resources"):
        try:
            author = find_class("resources", name)
        except WorkerNotFound:
            continue
        if makes_rows(author):
            found.append(name)
    return found


def list_blocks(blocks: Sequence[DatasetBlock], *, as_json: bool) -> None:
    if as_json:
        for block in blocks:
            rows = block.rows()
            facts = {name: getattr(block, name) for name in ("name", "kind", "agent", "num_repeats")}
            print(msgspec.json.encode({**facts, "file": str(rows), "is_ready": rows.is_file()}).decode())
        return
    console = listing_console()
    if not blocks:
        console.print("no data sets: give --config FILE or --benchmark NAME")
        return
    table = listing("", "data set", "type", "agent", "repeats", "rows", names=("type",))
    for block in blocks:
        table.add_row(block.name, block.kind, printable(block.agent), str(block.num_repeats), _where(block))
    console.print(table)


def _where(block: DatasetBlock) -> str:
    rows = block.rows()
    if rows.is_file():
        return str(rows)
    if block.source is not None:
        return f"to be fetched: {HUB}{block.source.repository}"
    return "missing" if block.prepare_script is None else f"to be made by {block.prepare_script}"


def _fields(line: bytes, where: str) -> dict[str, Any]:
    """Return the fields of a row.

    Raises:
        RowError: the line is not one; the message begins with `where`.
    """
    try:
        return dict(parse_object(line))
    except JsonlError as error:
        raise RowError(f"{where}: {error}") from None


def _block_named(name: str, sources: WorkerSources, overrides: Sequence[str]) -> DatasetBlock:
    """Return a data set of the configuration or, without one, that of the benchmark of this name."""
    if not sources.config and sources.benchmark is None:
        sources, wanted = replace(sources, benchmark=name), BENCHMARK
    else:
        wanted = name
    return find_block(blocks_of(read_config(sources, overrides, check=False, needs_policy=False), sources), wanted)


def rows_of(name: str, sources: WorkerSources, overrides: Sequence[str]) -> Dataset:
    """Return the rows of a data set by its name, or by that of a file, a folder or a data set of the Hub."""
    is_place = name.startswith(HUB) or name.endswith(READABLE) or Path(name).exists()
    if is_place and not sources.config and sources.benchmark is None:
        return Dataset(Path(name))
    block = _block_named(name, sources, overrides)
    if not block.rows().is_file():
        if block.source is None and block.prepare_script is None:
            raise UsageError(f"data set {name}: {block.rows()} does not exist, and nothing in its block makes it")
        raise UsageError(f"the rows of {name} are not there yet: `{_preparing(name, sources)}` makes them")
    return Dataset(block.rows())


def _preparing(name: str, sources: WorkerSources) -> str:
    """Return the command that makes the rows of a data set of these sources."""
    words = ["gymq", "data", "prepare", name]
    for config in sources.config:
        words += ["--config", str(config)]
    if sources.benchmark is not None:
        words += ["--benchmark", sources.benchmark]
    for folder in sources.search_dir:
        words += ["--search-dir", str(folder)]
    return shlex.join(words)


def show_rows(dataset: Dataset, count: int) -> None:
    """Print the number of rows, in how many each field is, and the first rows."""
    fields: dict[str, int] = {}
    first: list[bytes] = []
    total = 0
    for _, where, line in numbered_lines(dataset):
        total += 1
        for field in _fields(line, where):
            fields[field] = fields.get(field, 0) + 1
        if len(first) < count:
            first.append(line)
    console = listing_console()
    table = listing(f"{counted(total, 'row')} in {dataset.name}", "field", "rows")
    for field, number in fields.items():
        table.add_row(printable(field), f"{number:,}")
    console.print(table)
    for line in first:
        text = line.decode(errors="replace").strip()
        console.print(printable(text if len(text) <= 400 else f"{text[:400]}…"))


async def prepare_data(
    name: str, sources: WorkerSources, overrides: Sequence[str], *, with_network: bool, again: bool
) -> None:
    """Make the rows of a data set ready, and say where they are."""
    if name.startswith(HUB):
        for file in Dataset(Path(name)).files:
            print(file)
        return
    file = await prepare(_block_named(name, sources, overrides), with_network=with_network, again=again)
    count = sum(1 for _ in numbered_lines(Dataset(file)))
    print(f"{counted(count, 'row')} in {file}")
