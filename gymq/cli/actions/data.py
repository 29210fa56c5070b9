"""The work of `gymq data`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gymq.cli.errors import UsageError
from gymq.data.jsonl import atomic_write
from gymq.data.token_counts import token_counter
from gymq.loading.registry import WorkerNotFound, find
from gymq.loading.worker_facts import names
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
    """Write the rows that an environment makes to a file, or print them.

    Raises:
        UsageError: it makes none, or none of a kind, or the file cannot be written.
        OptionsError: it has none as they are wanted.
    """
    author = find("resources", environment)
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
    print(f"{count:,} rows in {output}")


def makes_rows(author: type[Resources]) -> bool:
    """Return whether a class defines `make_rows`."""
    return any("make_rows" in vars(base) for base in author.__mro__ if base is not Resources)


def makers() -> list[str]:
    """Return the names of the environments that make rows and can be imported."""
    found = []
    for name in names("resources"):
        try:
            author = find("resources", name)
        except WorkerNotFound:
            continue
        if makes_rows(author):
            found.append(name)
    return found
