"""Data sets that `gymq collect` reads: JSONL, Parquet and Arrow files, folders of them, and names of the Hub.

Each row becomes one line of JSON. Files are read in pieces, so memory does not grow with them.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from gymq.data.hub import PREFIX, READABLE, SHARD, HubName, fetch
from gymq.data.jsonl import NOT_A_FILE, JsonlError, JsonlFile
from gymq.data.rows import AGENT_REF, PARAMS
from gymq.data.run_files import file_digest
from gymq.workers import SHIPPED

ROWS_AT_ONCE = 8  # decoded to Python objects: a value that a file has once may be in each of them

_COLUMNAR = (".parquet", ".arrow")
_AS_JSON_TEXT = (PARAMS, AGENT_REF)  # objects that may be JSON text in a table


class DatasetError(JsonlError):
    """A data set cannot be found or read. The text names file and row."""


class Dataset:
    """The rows of a data set as lines of JSON, in order. It can be read again from the start."""

    def __init__(self, path: Path, *, of_a_list: bool = False) -> None:
        """Find the files of a data set.

        Args:
            of_a_list: whether the file has the rows of a list in Python, whose places messages name.
            path: a name of the Hugging Face Hub such as `hf:OWNER/NAME:SPLIT`; a file; a folder with the files of one
                split, or one that `datasets.Dataset.save_to_disk` wrote; or `FOLDER/SPLIT` for the files of a split in
                a folder. As with configurations, anything that is not in the current folder is looked for among the
                files that gymq ships.

        Raises:
            DatasetError, HubError: the data set does not exist or is ambiguous, or the Hub cannot be reached.
        """
        self.path = path
        self.name = "rows" if of_a_list else str(path)
        self.files = _files_of(path)
        self._of_a_list = of_a_list
        self._before: list[int] = []  # lines before each file that was begun

    def place(self, number: int) -> str:
        """Return the place of a row that was read, counted from 1, for messages."""
        if self._of_a_list:
            return f"{self.name}[{number - 1}]"
        if len(self.files) == 1:
            return f"{self.name}:{number}"
        at = bisect_left(self._before, number) - 1
        return f"{self.files[at]}:{number - self._before[at]}"

    def __iter__(self) -> Iterator[bytes]:
        """Yield the rows as lines of JSON.

        Raises:
            JsonlError: a file cannot be read, or a row has no JSON form.
        """
        return self.lines()

    def lines(self, refuse: Callable[[int, str], None] | None = None) -> Iterator[bytes]:
        """Yield the rows as lines of JSON.

        Args:
            refuse: called with the number of each row that has no JSON form, counted from 1, and one sentence why; an
                empty line is yielded for it. None: such a row is an error.

        Raises:
            JsonlError: a file cannot be read.
        """
        number = 0
        for position, file in enumerate(self.files):
            before = number
            self._before[position:] = [before]

            def refuse_row(row: int, problem: str, file: Path = file, before: int = before) -> None:
                if refuse is None:
                    raise DatasetError(f"{file}: row {row}: {problem}")
                refuse(before + row, problem)

            for line in _lines_of_table(file, refuse_row) if file.suffix in _COLUMNAR else JsonlFile(file):
                number += 1
                yield line

    def digest(self) -> str:
        """Return the SHA-256 of the file's bytes; of several files, that of their digests."""
        digests = [file_digest(file) for file in self.files]
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


# Which files ----------------------------------------------------------------------------------------------------------


def _files_of(path: Path) -> list[Path]:
    if str(path).startswith(PREFIX):
        return fetch(HubName.parse(str(path)))
    if path.is_file():
        return [path]
    if path.is_dir():
        return _files_of_folder(path)
    files = _splits(path.parent).get(path.name) if path.parent.is_dir() else None
    if files:
        return files
    if not path.is_absolute() and (SHIPPED / path).exists():
        return _files_of(SHIPPED / path)
    if path.exists():
        raise DatasetError(f"{path}: {NOT_A_FILE}")
    is_of_hub = len(path.parts) == 2 and not path.suffix and not path.parent.is_dir()
    hint = f"; a data set of the Hugging Face Hub is named {PREFIX}{path}" if is_of_hub else ""
    raise DatasetError(f"input file {path} not found{hint}")


def _files_of_folder(folder: Path) -> list[Path]:
    if (folder / "state.json").is_file():
        return _saved_to_disk(folder)
    if (folder / "dataset_dict.json").is_file():
        splits = [split.name for split in sorted(folder.iterdir()) if (split / "state.json").is_file()]
        found = {split: [folder / split] for split in splits}
        return _files_of_folder(_only(folder, found)[0])
    return _only(folder, _splits(folder))


def _only(folder: Path, splits: dict[str, list[Path]]) -> list[Path]:
    if not splits:
        raise DatasetError(f"{folder} contains no {', '.join(READABLE)} files and no saved data set")
    if len(splits) > 1:
        raise DatasetError(f"{folder} contains {', '.join(splits)}: name one, as in {folder / next(iter(splits))}")
    return next(iter(splits.values()))


def _splits(folder: Path) -> dict[str, list[Path]]:
    """Return the files of a folder, or of its folder `data`, by split.

    `train.parquet` and `train-00000-of-00002.parquet` both belong to the split `train`.
    """
    for place in (folder, folder / "data"):
        found: dict[str, list[Path]] = {}
        counts: dict[str, int] = {}
        for file in sorted(place.iterdir()) if place.is_dir() else ():
            ending = next((ending for ending in READABLE if file.name.endswith(ending)), None)
            if ending and file.is_file() and not file.name.startswith("."):
                stem = file.name.removesuffix(ending)
                shard = SHARD.fullmatch(stem)
                found.setdefault(shard["split"] if shard else stem, []).append(file)
                if shard:
                    counts[shard["split"]] = int(shard["count"])
        for split, count in counts.items():
            if len(found[split]) != count:
                raise DatasetError(
                    f"{place} contains {len(found[split])} files of {split}, their names indicate {count}"
                )
        if found:
            return found
    return {}


def _saved_to_disk(folder: Path) -> list[Path]:
    """Return the files that `state.json` names; the folder may hold others from earlier saves."""
    state = folder / "state.json"
    try:
        names = [entry["filename"] for entry in msgspec.json.decode(state.read_bytes())["_data_files"]]
        files = [folder / str(name) for name in names]
    except (OSError, msgspec.DecodeError, LookupError, TypeError) as error:
        raise DatasetError(f"{state}: not the state of a saved data set: {error!r}") from None
    missing = [str(file) for file in files if file.parent != folder or not file.is_file()]
    if missing:
        raise DatasetError(f"{state} names files that do not exist: {', '.join(missing)}")
    return files


# Rows of tables -------------------------------------------------------------------------------------------------------


def _lines_of_table(file: Path, refuse: Callable[[int, str], None]) -> Iterator[bytes]:
    try:
        import pyarrow  # type: ignore[import-untyped]
    except ImportError:
        raise DatasetError(f'{file}: reading this needs pyarrow: pip install "gymq[datasets]"') from None
    number = 0
    try:
        for batch in _parquet_batches(file) if file.suffix == ".parquet" else _arrow_batches(file):
            for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                for row in batch.slice(start, ROWS_AT_ONCE).to_pylist(maps_as_pydicts="strict"):
                    number += 1
                    try:
                        line = _line(row)
                    except DatasetError as error:
                        refuse(number, str(error))
                        line = b""
                    yield line
    except FileNotFoundError:
        raise DatasetError(f"{file}: file not found") from None
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        detail = " ".join(str(error).split())[:300]
        raise DatasetError(f"{file}: cannot be read after row {number}: {detail}") from None


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
        raise DatasetError(f"the row has no JSON form: {error}") from None


def _parsed(text: str, where: str) -> Any:
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise DatasetError(f"{where}: expected an object or the JSON text of one: {error}") from None


def _plain(value: Any, where: str) -> Any:
    """Return the value without fields that are null.

    In a table each object has the fields of all objects, with null for missing ones.
    """
    if isinstance(value, dict):
        return {name: _plain(entry, f"{where}.{name}") for name, entry in value.items() if not _is_missing(entry)}
    if isinstance(value, list):
        return [None if _is_missing(entry) else _plain(entry, where) for entry in value]
    if isinstance(value, bytes):
        raise DatasetError(f"{where}: contains bytes, which have no JSON form; write images as data URLs")
    if isinstance(value, float) and math.isinf(value):
        raise DatasetError(f"{where}: contains an infinite number, which has no JSON form")
    return value


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
