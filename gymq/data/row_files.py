"""Files of rows in any format as lines of JSON: lines, JSON arrays, and tables, which an entry point reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from gymq.data.jsonl import JsonlError, JsonlFile
from gymq.extensions import extensions
from gymq.protocol.decoding import UNDECODABLE

DELIMITERS = {".csv": ",", ".tsv": "\t"}
_TABLES = (".parquet", ".arrow", *DELIMITERS)
_COMPRESSED = (".gz", ".zst")

Refuse = Callable[[int, str], None]
"""Called with the number of a row that has no JSON form, counted from 1, and one sentence why."""


def read_rows_of(file: Path, refuse: Refuse) -> Iterator[bytes]:
    """Yield the rows of a file of any format as lines of JSON; for a row that is refused, an empty line.

    Raises:
        JsonlError: the file cannot be read.
    """
    kind = kind_of(file)
    if kind in _TABLES:
        return _table_lines(file, refuse)
    return _array_lines(file) if kind == ".json" and _is_array(file) else iter(JsonlFile(file))


def num_header_lines(file: Path) -> int:
    """Return how many lines of a file come before its first row."""
    return 1 if kind_of(file) in DELIMITERS else 0


def kind_of(file: Path) -> str:
    """Return the ending of a file's name, without that of its compression."""
    return Path(file.stem).suffix if file.suffix in _COMPRESSED else file.suffix


def _table_lines(file: Path, refuse: Refuse) -> Iterator[bytes]:
    for found in extensions("tables"):
        lines: Iterator[bytes] = found.load()(file, refuse)
        return lines
    raise JsonlError(f"{file}: tables cannot be read: no package has the entry point gymq.tables")


def _is_array(file: Path) -> bool:
    return next((line for line in JsonlFile(file) if not line.isspace()), b"").lstrip().startswith(b"[")


def _array_lines(file: Path) -> Iterator[bytes]:
    try:
        rows = msgspec.json.decode(b"".join(JsonlFile(file)), type=list[msgspec.Raw])
    except UNDECODABLE as error:
        raise JsonlError(f"{file}: not a JSON array: {error}") from None
    for row in rows:
        yield msgspec.json.format(row, indent=-1) + b"\n"
