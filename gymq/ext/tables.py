"""Tables as lines of JSON: Parquet, Arrow and CSV files, whose columns are the fields of rows.

Files are read in pieces, so memory does not grow with them.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gymq.data.jsonl import MAX_LINE_BYTES, JsonlError, JsonlFile
from gymq.data.row_files import DELIMITERS, Refuse, kind_of
from gymq.data.rows import AGENT_REF, PARAMS
from gymq.protocol.decoding import UNDECODABLE

ROWS_AT_ONCE = 8  # decoded to Python objects: a value that a file has once may be in each of them

_AS_JSON_TEXT = (PARAMS, AGENT_REF)  # objects that may be JSON text in a table


def read_table(file: Path, refuse: Refuse) -> Iterator[bytes]:
    """Yield the rows of a table as lines of JSON; for a row that is refused, an empty line.

    Raises:
        JsonlError: the file cannot be read.
    """
    delimiter = DELIMITERS.get(kind_of(file))
    return _columnar_lines(file, refuse) if delimiter is None else _delimited_lines(file, delimiter, refuse)


def _delimited_lines(file: Path, delimiter: str, refuse: Refuse) -> Iterator[bytes]:
    """Yield the rows of a CSV file. All values are texts; an empty cell is a missing field."""
    csv.field_size_limit(MAX_LINE_BYTES)  # of the process; its default of 128 KiB is less than a long prompt
    number = 0
    try:
        reader = csv.reader((line.decode() for line in JsonlFile(file)), delimiter=delimiter, strict=True)
        header = next(reader, [])
        if twice := [name for name in header if name and header.count(name) > 1]:
            raise JsonlError(f"{file}: two columns are named {twice[0]!r}")
        for number, cells in enumerate(reader, 1):
            line = b""
            if len(cells) > len(header):
                refuse(number, f"the row has {len(cells)} cells, and the header has {len(header)}")
            elif cells:  # a blank line has none
                named = zip(header, cells, strict=False)
                line = _checked_line({name: cell or None for name, cell in named if name}, number, refuse)
            yield line
    except UnicodeDecodeError as error:
        raise JsonlError(f"{file}: not UTF-8 after row {number}: byte {error.start} of a line") from None
    except csv.Error as error:
        raise JsonlError(f"{file}: cannot be read after row {number}: {error}") from None


def _columnar_lines(file: Path, refuse: Refuse) -> Iterator[bytes]:
    try:
        import pyarrow  # type: ignore[import-untyped]
    except ImportError:
        raise JsonlError(f'{file}: reading this needs pyarrow: pip install "gymq[datasets]"') from None
    number = 0
    try:
        for batch in _parquet_batches(file) if file.suffix == ".parquet" else _arrow_batches(file):
            for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                for row in batch.slice(start, ROWS_AT_ONCE).to_pylist(maps_as_pydicts="strict"):
                    number += 1
                    yield _checked_line(row, number, refuse)
    except FileNotFoundError:
        raise JsonlError(f"{file}: file not found") from None
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        detail = " ".join(str(error).split())[:300]
        raise JsonlError(f"{file}: cannot be read after row {number}: {detail}") from None


def _parquet_batches(file: Path) -> Iterator[Any]:
    from pyarrow import parquet

    with parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20) as table:
        yield from table.iter_batches(batch_size=ROWS_AT_ONCE, use_threads=False)


def _arrow_batches(file: Path) -> Iterator[Any]:
    import pyarrow

    with pyarrow.memory_map(str(file)) as source:
        if source.read(6) == b"ARROW1":
            source.seek(0)
            with pyarrow.ipc.open_file(source) as table:
                for index in range(table.num_record_batches):
                    yield table.get_batch(index)
        else:
            source.seek(0)
            with pyarrow.ipc.open_stream(source) as stream:
                yield from stream


def _checked_line(row: dict[str, Any], number: int, refuse: Refuse) -> bytes:
    try:
        return _line(row)
    except JsonlError as error:
        refuse(number, str(error))
        return b""


def _line(row: dict[str, Any]) -> bytes:
    fields = {}
    for name, value in row.items():
        if name in _AS_JSON_TEXT and isinstance(value, str):
            fields[name] = _parsed(value, f"column {name}")
        elif not _is_missing(value):
            fields[name] = _plain(value, f"column {name}")
    try:
        return msgspec.json.encode(fields) + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise JsonlError(f"the row has no JSON form: {error}") from None


def _parsed(text: str, where: str) -> Any:
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except UNDECODABLE as error:
        raise JsonlError(f"{where}: expected an object or the JSON text of one: {error}") from None


def _plain(value: Any, where: str) -> Any:
    """Return the value without fields that are null.

    In a table each object has the fields of all objects, with null for missing ones.
    """
    if isinstance(value, dict):
        return {name: _plain(entry, f"{where}.{name}") for name, entry in value.items() if not _is_missing(entry)}
    if isinstance(value, list):
        return [None if _is_missing(entry) else _plain(entry, where) for entry in value]
    if isinstance(value, bytes):
        raise JsonlError(f"{where}: contains bytes, which have no JSON form; write images as data URLs")
    if isinstance(value, float) and math.isinf(value):
        raise JsonlError(f"{where}: contains an infinite number, which has no JSON form")
    return value


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
